#include "model/stages.hpp"

#include "tigon/ops/linear.hpp"

namespace tigon {

std::vector<Stage> block_stages(const BlockShape& shape) {
  const bool qk_norm = shape.config.qk_norm;
  std::vector<Stage> stages = {norm1_stage(shape), qk_norm ? qkv_normed_stage(shape) : qkv_stage(),
                               attention_stage(qk_norm), o_proj_stage(), norm2_stage(shape)};
  if (shape.mlp_tile > 0) {
    stages.push_back(tiled_mlp_stage());
  } else {
    stages.push_back(gate_up_stage());
    stages.push_back(activation_stage(shape));
    stages.push_back(down_stage());
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

void rotate(const BlockRun& run, const HeadViews& heads, bool backward) {
  const ModelConfig& c = run.shape.config;
  const Tensor q = heads.q.transpose(1, 2), k = heads.k.transpose(1, 2);
  const ops::Rope args{.q = q, .k = k, .q_out = q, .k_out = k, .theta = c.rope_theta, .scaling = c.rope_scaling};
  if (run.shape.fused.rope) {
    backward ? ops::rope_backward(run.ctx, args) : ops::rope_forward(run.ctx, args);
  } else {
    backward ? ops::unfused::rope_backward(run.ctx, args) : ops::unfused::rope_forward(run.ctx, args);
  }
}

namespace {

Tensor rows_of(const Tensor& weight, Rows rows) {
  return weight.slice(0, rows.begin, rows.end < 0 ? weight.sizes[0] : rows.end);
}

bool has_bias(const BlockRun& run, BlockWeight which) {
  return which == BlockWeight::qkv && run.w(BlockWeight::qkv_bias).present();
}

ops::unfused::Tape& activation_tape(const BlockRun& run) { return run.values.tape(Slot::act_tape); }

ops::Gelu gelu_of(Activation activation) {
  return activation == Activation::gelu_tanh ? ops::Gelu::tanh : ops::Gelu::erf;
}

}  // namespace

void project_forward(const BlockRun& run, BlockWeight which, const Tensor& x, const Tensor& y, Rows rows) {
  ops::LinearForward linear{.x = x, .weight = rows_of(run.w(which), rows), .y = y};
  if (has_bias(run, which)) linear.bias = rows_of(run.w(BlockWeight::qkv_bias), rows);
  ops::linear_forward(run.ctx, linear);
}

void project_backward(const BlockRun& run, BlockWeight which, const ProjectBackward& args) {
  ops::LinearBackward linear{.dy = args.dy, .dx = args.dx, .accumulate_dx = args.accumulate_dx};
  if (args.dx.present()) linear.weight = rows_of(run.w(which), args.rows);
  if (args.x.present()) {
    const Gradient gradient = args.dweight ? *args.dweight : run.gradients->gradient(which);
    linear.x = args.x;
    linear.dweight = rows_of(gradient.tensor, args.rows);
    linear.accumulate_dweight = gradient.accumulate;
    if (has_bias(run, which)) linear.dbias = rows_of(run.gradients->gradient(BlockWeight::qkv_bias).tensor, args.rows);
  }
  ops::linear_backward(run.ctx, linear);
}

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
