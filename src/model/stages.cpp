#include "model/stages.hpp"

namespace tigon {

std::vector<Stage> block_stages(const BlockShape& shape) {
  const bool qk_norm = shape.config.qk_norm;
  std::vector<Stage> stages = {norm1_stage(shape), qk_norm ? qkv_normed_stage(shape) : qkv_stage(shape),
                               shape.cached ? cached_attention_stage(qk_norm) : attention_stage(qk_norm),
                               o_proj_stage(), norm2_stage(shape)};
  if (shape.mlp_tile > 0) {
    stages.push_back(tiled_mlp_stage());
  } else {
    stages.push_back(gate_up_stage(shape));
    stages.push_back(activation_stage(shape));
    stages.push_back(down_stage(shape));
  }
  return stages;
}

Tensor heads_view(const BlockShape& shape, const Tensor& t, int64_t column, int64_t heads) {
  const int64_t dim = shape.config.head_dim, width = t.strides[0];
  Tensor view = t.slice(1, column, column + heads * dim);
  view.rank = 4;
  const int64_t sizes[] = {shape.batch, shape.seq, heads, dim}, strides[] = {shape.seq * width, width, dim, 1};
  std::copy(sizes, sizes + 4, view.sizes);
  std::copy(strides, strides + 4, view.strides);
  return view;
}

HeadViews packed_heads(const BlockShape& shape, const Tensor& qkv) {
  const ModelConfig& c = shape.config;
  return {.q = heads_view(shape, qkv, 0, c.heads),
          .k = heads_view(shape, qkv, c.q_width(), c.kv_heads),
          .v = heads_view(shape, qkv, c.q_width() + c.kv_width(), c.kv_heads)};
}

HeadViews separate_heads(const BlockShape& shape, const Tensor& q, const Tensor& k, const Tensor& v) {
  const ModelConfig& c = shape.config;
  return {.q = heads_view(shape, q, 0, c.heads),
          .k = heads_view(shape, k, 0, c.kv_heads),
          .v = heads_view(shape, v, 0, c.kv_heads)};
}

HeadViews heads_of(const BlockRun& run) {
  BlockValues& v = run.values;
  return v.has(Slot::qkv) ? packed_heads(run.shape, v[Slot::qkv])
                          : separate_heads(run.shape, v[Slot::q], v[Slot::k], v[Slot::v]);
}

void rotate(const BlockRun& run, const HeadViews& heads, bool backward) {
  const ModelConfig& c = run.shape.config;
  const Tensor q = heads.q.transpose(1, 2), k = heads.k.transpose(1, 2);
  const ops::Rope args{.q = q,
                       .k = k,
                       .q_out = q,
                       .k_out = k,
                       .positions = run.positions,
                       .theta = c.rope_theta,
                       .scaling = c.rope_scaling};
  if (run.shape.fused.rope) {
    backward ? ops::rope_backward(run.ctx, args) : ops::rope_forward(run.ctx, args);
  } else {
    backward ? ops::unfused::rope_backward(run.ctx, args) : ops::unfused::rope_forward(run.ctx, args);
  }
}

namespace {

ops::unfused::Tape& activation_tape(const BlockRun& run) { return run.values.tape(Slot::act_tape); }

ops::Gelu gelu_of(Activation activation) {
  return activation == Activation::gelu_tanh ? ops::Gelu::tanh : ops::Gelu::erf;
}

}  // namespace

void norm_forward(const BlockRun& run, Slot tape, const ops::RmsnormForward& args) {
  if (run.shape.fused.rmsnorm) return ops::rmsnorm_forward(run.ctx, args);
  ops::unfused::rmsnorm_forward(run.ctx, args, run.values.tape(tape));
}

void norm_backward(const BlockRun& run, Slot tape, const ops::RmsnormBackward& args) {
  if (run.shape.fused.rmsnorm) return ops::rmsnorm_backward(run.ctx, args);
  ops::unfused::rmsnorm_backward(run.ctx, args, run.values.tape(tape));
}

void gated_forward(const BlockRun& run, const Tensor& gate_up, const Tensor& act) {
  const int64_t width = act.sizes[1];
  const Tensor a = gate_up.slice(1, 0, width), b = gate_up.slice(1, width, 2 * width);
  const bool fused = run.shape.fused.swiglu;
  if (run.shape.config.activation == Activation::silu) {
    const ops::SwigluForward args{.a = a, .b = b, .c = act};
    fused ? ops::swiglu_forward(run.ctx, args) : ops::unfused::swiglu_forward(run.ctx, args, activation_tape(run));
  } else {
    const ops::GegluForward args{.a = a, .b = b, .c = act, .gelu = gelu_of(run.shape.config.activation)};
    fused ? ops::geglu_forward(run.ctx, args) : ops::unfused::geglu_forward(run.ctx, args, activation_tape(run));
  }
}

void gated_backward(const BlockRun& run, const Tensor& dact, const Tensor& gate_up, const Tensor& act) {
  const int64_t width = dact.sizes[1];
  const Tensor a = gate_up.slice(1, 0, width), b = gate_up.slice(1, width, 2 * width);
  const bool fused = run.shape.fused.swiglu;
  if (run.shape.config.activation == Activation::silu) {
    const ops::SwigluBackward args{.dc = dact, .a = a, .b = b, .da = a, .db = b, .c = act};
    fused ? ops::swiglu_backward(run.ctx, args) : ops::unfused::swiglu_backward(run.ctx, args, activation_tape(run));
  } else {
    const ops::GegluBackward args{
        .dc = dact, .a = a, .b = b, .da = a, .db = b, .c = act, .gelu = gelu_of(run.shape.config.activation)};
    fused ? ops::geglu_backward(run.ctx, args) : ops::unfused::geglu_backward(run.ctx, args, activation_tape(run));
  }
}

}  // namespace tigon
