// The two norms of a block. Each takes the addition to the residual stream along: norm1 adds what the block below left
// (mid + out), norm2 what attention did (x + attn_out). The sum's gradient is the gradient of both its terms, so one
// array carries the stream's gradient from block to block.
#include "model/stages.hpp"
#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/rmsnorm.hpp"

namespace tigon {

namespace {

void add_norm_forward(const BlockRun& run, Slot tape, const ops::AddRmsnormForward& args) {
  if (run.shape.fused.rmsnorm) return ops::add_rmsnorm_forward(run.ctx, args);
  ops::unfused::add_rmsnorm_forward(run.ctx, args, run.values.tape(tape));
}

void add_norm_backward(const BlockRun& run, Slot tape, const ops::AddRmsnormBackward& args) {
  if (run.shape.fused.rmsnorm) return ops::add_rmsnorm_backward(run.ctx, args);
  ops::unfused::add_rmsnorm_backward(run.ctx, args, run.values.tape(tape));
}

void norm1_forward(const BlockRun& run) {
  const ModelConfig& c = run.shape.config;
  BlockValues& v = run.values;
  if (v.has(Slot::in_out)) {
    add_norm_forward(run, Slot::norm1_tape,
                     {.x = v[Slot::in_out],
                      .residual = v[Slot::in_mid],
                      .weight = run.w(BlockWeight::norm1),
                      .residual_out = v[Slot::x],
                      .y = v[Slot::normed1],
                      .rstd = v[Slot::rstd1],
                      .eps = c.norm_eps,
                      .offset = c.norm_offset,
                      .casting = c.norm_casting});
    return;
  }
  // The first block, and every one that runs again: x is there.
  norm_forward(run, Slot::norm1_tape,
               {.x = v[Slot::x],
                .weight = run.w(BlockWeight::norm1),
                .y = v[Slot::normed1],
                .rstd = v[Slot::rstd1],
                .eps = c.norm_eps,
                .offset = c.norm_offset,
                .casting = c.norm_casting});
}

void norm1_backward(const BlockRun& run) {
  const ModelConfig& c = run.shape.config;
  BlockValues& v = run.values;
  const Gradient weight = run.gradients->gradient(BlockWeight::norm1);
  add_norm_backward(run, Slot::norm1_tape,
                    {.dy = v.d(Slot::normed1),
                     .dresidual_out = v.d(Slot::mid),
                     .residual_out = v[Slot::x],
                     .weight = run.w(BlockWeight::norm1),
                     .rstd = v[Slot::rstd1],
                     .dx = v.d(Slot::mid),
                     .dweight = weight.tensor,
                     .offset = c.norm_offset,
                     .casting = c.norm_casting,
                     .accumulate_dweight = weight.accumulate});
  v.d(Slot::x) = std::move(v.d(Slot::mid));
}

void norm2_forward(const BlockRun& run) {
  const ModelConfig& c = run.shape.config;
  BlockValues& v = run.values;
  add_norm_forward(run, Slot::norm2_tape,
                   {.x = v[Slot::attn_out],
                    .residual = v[Slot::x],
                    .weight = run.w(BlockWeight::norm2),
                    .residual_out = v[Slot::mid],
                    .y = v[Slot::normed2],
                    .rstd = v[Slot::rstd2],
                    .eps = c.norm_eps,
                    .offset = c.norm_offset,
                    .casting = c.norm_casting});
}

void norm2_backward(const BlockRun& run) {
  const ModelConfig& c = run.shape.config;
  BlockValues& v = run.values;
  const Gradient weight = run.gradients->gradient(BlockWeight::norm2);
  add_norm_backward(run, Slot::norm2_tape,
                    {.dy = v.d(Slot::normed2),
                     .dresidual_out = v.d(Slot::out),
                     .residual_out = v[Slot::mid],
                     .weight = run.w(BlockWeight::norm2),
                     .rstd = v[Slot::rstd2],
                     .dx = v.d(Slot::out),
                     .dweight = weight.tensor,
                     .offset = c.norm_offset,
                     .casting = c.norm_casting,
                     .accumulate_dweight = weight.accumulate});
  v.d(Slot::mid) = std::move(v.d(Slot::out));
}

}  // namespace

Stage norm1_stage(const BlockShape& shape) {
  Stage stage{.id = StageId::norm1,
              .reads = {Slot::in_mid, Slot::in_out, Slot::x},
              .writes = {Slot::x, Slot::normed1, Slot::rstd1},
              .backward_reads = {Slot::x, Slot::rstd1},
              .grad_reads = {Slot::normed1, Slot::mid},
              .forward = norm1_forward,
              .backward = norm1_backward};
  if (!shape.fused.rmsnorm) {
    stage.writes |= {Slot::norm1_tape};
    stage.backward_reads |= {Slot::norm1_tape};
  }
  return stage;
}

Stage norm2_stage(const BlockShape& shape) {
  Stage stage{.id = StageId::norm2,
              .reads = {Slot::x, Slot::attn_out},
              .writes = {Slot::mid, Slot::normed2, Slot::rstd2},
              .backward_reads = {Slot::mid, Slot::rstd2},
              .grad_reads = {Slot::normed2, Slot::out},
              .forward = norm2_forward,
              .backward = norm2_backward};
  if (!shape.fused.rmsnorm) {
    stage.writes |= {Slot::norm2_tape};
    stage.backward_reads |= {Slot::norm2_tape};
  }
  return stage;
}

}  // namespace tigon
