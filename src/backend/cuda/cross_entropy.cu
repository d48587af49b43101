// cross_entropy: the loss of given logits.
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/loss.cuh"

namespace tigon::cuda {

void cross_entropy_forward(const Context& ctx, const ops::CrossEntropyForward& args) {
  const int64_t tokens = args.logits.sizes[0], vocab = args.logits.sizes[1];
  const Buffer factors = ctx.scratch("loss_factors", static_cast<int64_t>(sizeof(LossFactors)));
  const Buffer stats = ctx.scratch("loss_rows", tokens * static_cast<int64_t>(sizeof(RowStats)));
  const Buffer sums = ctx.scratch("loss_sums", loss_sums_bytes(args.options.reduction, tokens));
  if (ctx.measuring()) return;
  const DeviceGuard guard(ctx);
  LossBatch batch = loss_batch(args, tokens, vocab);
  batch.factors = factors.as<LossFactors>();
  batch.stats = stats.as<RowStats>();
  batch.wants_best = args.out.predicted || args.out.accuracy;
  loss_count(ctx, batch);
  const bool early = loss_rows(ctx, batch, 0, args.logits, args.dlogits, false, true);
  loss_finish(ctx, batch, args.out, args.options.reduction, sums, early);
}

void cross_entropy_backward(const Context& ctx, const ops::CrossEntropyBackward& args) {
  const int64_t tokens = args.logits.sizes[0], vocab = args.logits.sizes[1];
  const Buffer factors = ctx.scratch("loss_factors", static_cast<int64_t>(sizeof(LossFactors)));
  if (ctx.measuring() || args.logits.elements() == 0) return;
  const DeviceGuard guard(ctx);
  LossBatch batch = loss_batch(args, tokens, vocab);
  batch.factors = factors.as<LossFactors>();
  batch.dloss = args.dloss.as<float>();
  batch.dloss_by_token = args.dloss.sizes[0] != 1;
  loss_count(ctx, batch);
  loss_panel_gradient(ctx, batch, 0, args.logits, 0, args.lse.as<float>(), args.dlogits, false);
}

}  // namespace tigon::cuda
