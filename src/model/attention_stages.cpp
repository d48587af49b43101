// qkv and rotation, attention, and the projection of its result.
#include "model/stages.hpp"
#include "tigon/ops/attention.hpp"
#include "tigon/ops/rmsnorm.hpp"

namespace tigon {

namespace {

void qkv_forward(const BlockRun& run) {
  BlockValues& v = run.values;
  project_forward(run, BlockWeight::qkv, v[Slot::normed1], v[Slot::qkv]);
  rotate(run, packed_heads(run.shape, v[Slot::qkv]), false);
}

void qkv_backward(const BlockRun& run) {
  BlockValues& v = run.values;
  rotate(run, packed_heads(run.shape, v.d(Slot::qkv)), true);
  const Tensor dnormed = run.make_grad(Slot::normed1);
  project_backward(run, BlockWeight::qkv, {.dy = v.d(Slot::qkv), .x = v[Slot::normed1], .dx = dnormed});
}

// Qwen3: the norm of each head wants q and k without gaps, so they are products of their own, by rows of one weight.
struct Projection {
  Slot raw, out, rstd, tape;
  BlockWeight norm;
  Rows rows;
};
Rows v_rows(const ModelConfig& c) { return {c.q_width() + c.kv_width(), c.qkv_width()}; }
std::array<Projection, 2> normed_projections(const ModelConfig& c) {
  return {{{Slot::q_raw, Slot::q, Slot::q_rstd, Slot::q_tape, BlockWeight::q_norm, {0, c.q_width()}},
           {Slot::k_raw, Slot::k, Slot::k_rstd, Slot::k_tape, BlockWeight::k_norm, {c.q_width(), v_rows(c).begin}}}};
}

// [T, heads·D] as [T·heads, D].
Tensor by_heads(const Tensor& t, int64_t dim) { return t.reshape({t.elements() / dim, dim}); }

void qkv_normed_forward(const BlockRun& run) {
  const ModelConfig& c = run.shape.config;
  BlockValues& v = run.values;
  for (const Projection& p : normed_projections(c)) {
    project_forward(run, BlockWeight::qkv, v[Slot::normed1], v[p.raw], p.rows);
    norm_forward(run, p.tape,
                 {.x = by_heads(v[p.raw], c.head_dim),
                  .weight = run.w(p.norm),
                  .y = by_heads(v[p.out], c.head_dim),
                  .rstd = v[p.rstd],
                  .eps = c.norm_eps,
                  .offset = c.norm_offset,
                  .casting = c.norm_casting});
  }
  project_forward(run, BlockWeight::qkv, v[Slot::normed1], v[Slot::v], v_rows(c));
  rotate(run, separate_heads(run.shape, v[Slot::q], v[Slot::k], v[Slot::v]), false);
}

void qkv_normed_backward(const BlockRun& run) {
  const ModelConfig& c = run.shape.config;
  BlockValues& v = run.values;
  rotate(run, separate_heads(run.shape, v.d(Slot::q), v.d(Slot::k), v.d(Slot::v)), true);
  const ProjectGradients gradients = project_gradients(run, BlockWeight::qkv);
  const Tensor dnormed = run.make_grad(Slot::normed1);
  bool add = false;
  const auto project = [&](const Tensor& dy, Rows rows) {
    project_backward(
        run, BlockWeight::qkv,
        {.dy = dy, .x = v[Slot::normed1], .dx = dnormed, .rows = rows, .accumulate_dx = add, .gradients = gradients});
    add = true;
  };
  for (const Projection& p : normed_projections(c)) {
    const Tensor d = by_heads(v.d(p.out), c.head_dim);
    const Gradient norm = run.gradients->gradient(p.norm);
    norm_backward(run, p.tape,
                  {.dy = d,
                   .x = by_heads(v[p.raw], c.head_dim),
                   .weight = run.w(p.norm),
                   .rstd = v[p.rstd],
                   .dx = d,
                   .dweight = norm.tensor,
                   .offset = c.norm_offset,
                   .casting = c.norm_casting,
                   .accumulate_dweight = norm.accumulate});
    project(v.d(p.out), p.rows);
  }
  project(v.d(Slot::v), v_rows(c));
}

HeadViews make_head_gradients(const BlockRun& run) {
  if (run.values.has(Slot::qkv)) return packed_heads(run.shape, run.make_grad(Slot::qkv));
  const Tensor q = run.make_grad(Slot::q), k = run.make_grad(Slot::k), v = run.make_grad(Slot::v);
  return separate_heads(run.shape, q, k, v);
}

void attention_forward(const BlockRun& run) {
  const HeadViews heads = heads_of(run);
  BlockValues& v = run.values;
  ops::attention_forward(run.ctx, {.q = heads.q,
                                   .k = heads.k,
                                   .v = heads.v,
                                   .o = heads_view(run.shape, v[Slot::attn], 0, run.shape.config.heads),
                                   .lse = v[Slot::lse],
                                   .starts = run.starts});
}

void attention_backward(const BlockRun& run) {
  const HeadViews heads = heads_of(run), grads = make_head_gradients(run);
  BlockValues& v = run.values;
  const int64_t count = run.shape.config.heads;
  ops::attention_backward(run.ctx, {.dout = heads_view(run.shape, v.d(Slot::attn), 0, count),
                                    .q = heads.q,
                                    .k = heads.k,
                                    .v = heads.v,
                                    .o = heads_view(run.shape, v[Slot::attn], 0, count),
                                    .lse = v[Slot::lse],
                                    .dq = grads.q,
                                    .dk = grads.k,
                                    .dv = grads.v,
                                    .starts = run.starts,
                                    .deterministic = run.shape.deterministic});
}

void o_proj_forward(const BlockRun& run) {
  project_forward(run, BlockWeight::o, run.values[Slot::attn], run.values[Slot::attn_out]);
}

void o_proj_backward(const BlockRun& run) {
  BlockValues& v = run.values;
  const Tensor dattn = run.make_grad(Slot::attn);
  // The gradient of attn_out is that of the stream it was added to.
  project_backward(run, BlockWeight::o, {.dy = v.d(Slot::mid), .x = v[Slot::attn], .dx = dattn});
}

}  // namespace

Stage qkv_stage(const BlockShape& shape) {
  return {.id = StageId::qkv,
          .reads = {Slot::normed1},
          .writes = {Slot::qkv},
          .backward_reads = shape.trains(BlockWeight::qkv) ? SlotSet{Slot::normed1} : SlotSet{},
          .grad_reads = {Slot::qkv},
          .forward = qkv_forward,
          .backward = qkv_backward};
}

Stage qkv_normed_stage(const BlockShape& shape) {
  Stage stage{.id = StageId::qkv,
              .reads = {Slot::normed1},
              .writes = {Slot::q, Slot::k, Slot::v, Slot::q_raw, Slot::k_raw, Slot::q_rstd, Slot::k_rstd},
              .backward_reads = {Slot::normed1, Slot::q_raw, Slot::k_raw, Slot::q_rstd, Slot::k_rstd},
              .grad_reads = {Slot::q, Slot::k, Slot::v},
              .forward = qkv_normed_forward,
              .backward = qkv_normed_backward};
  if (!shape.trains(BlockWeight::qkv)) stage.backward_reads = stage.backward_reads - SlotSet{Slot::normed1};
  if (!shape.fused.rmsnorm) {
    stage.writes |= {Slot::q_tape, Slot::k_tape};
    stage.backward_reads |= {Slot::q_tape, Slot::k_tape};
  }
  return stage;
}

Stage attention_stage(bool separate) {
  const SlotSet inputs = separate ? SlotSet{Slot::q, Slot::k, Slot::v} : SlotSet{Slot::qkv};
  return {.id = StageId::attention,
          .reads = inputs,
          .writes = {Slot::attn, Slot::lse},
          .backward_reads = inputs | SlotSet{Slot::attn, Slot::lse},
          .grad_reads = {Slot::attn},
          .forward = attention_forward,
          .backward = attention_backward};
}

Stage o_proj_stage() {
  return {.id = StageId::o_proj,
          .reads = {Slot::attn},
          .writes = {Slot::attn_out},
          .backward_reads = {Slot::attn},
          .grad_reads = {Slot::mid},
          .forward = o_proj_forward,
          .backward = o_proj_backward};
}

}  // namespace tigon
