#include "backend/reference/loss.hpp"
#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

namespace {

// A weight that comes in panels: one of all classes is plain enough.
void from_one_panel(const Context& ctx, const ops::FusedLinearCrossEntropyForward& args) {
  const ops::Classes all{0, args.weight.sizes[0]};
  ops::FusedLinearCrossEntropyForward whole = args;
  whole.panels = nullptr;
  whole.weight = args.panels->weight(ctx, all, {});
  if (args.dweight) whole.dweight = args.panels->dweight(ctx, all, {});
  reference::fused_linear_cross_entropy_forward(ctx, whole);
  if (args.dweight) args.panels->written(ctx, all);
}

}  // namespace

void fused_linear_cross_entropy_forward(const Context& ctx, const ops::FusedLinearCrossEntropyForward& args) {
  if (args.panels != nullptr) return from_one_panel(ctx, args);
  if (ctx.measuring()) return;
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1], vocab = args.weight.sizes[0];
  const LossBatch batch(args.target, args.class_weight, args.token_scale, args.dloss, args.options);
  const bool keep = args.accumulate_dweight;
  for (int64_t j = 0; j < vocab; ++j) {
    for (int64_t k = 0; args.dweight && !keep && k < hidden; ++k) at(args.dweight, j, k) = 0.0;
    if (args.dbias && !keep) at(args.dbias, j) = 0.0;
  }
  std::vector<TokenLoss> losses;
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t k = 0; args.dx && k < hidden; ++k) at(args.dx, i, k) = 0.0;
    losses.emplace_back();
    if (!batch.is_counted(i)) continue;
    std::vector<double> logits(static_cast<size_t>(vocab));
    for (int64_t j = 0; j < vocab; ++j) {
      double sum = args.bias ? at(args.bias, j) : 0.0;
      for (int64_t k = 0; k < hidden; ++k) sum += at(args.x, i, k) * at(args.weight, j, k);
      logits[static_cast<size_t>(j)] = sum;
    }
    losses.back() = token_loss(batch, i, logits);
    for (int64_t j = 0; j < vocab; ++j) {
      const double g = losses.back().gradient[static_cast<size_t>(j)];
      for (int64_t k = 0; args.dx && k < hidden; ++k) at(args.dx, i, k) += g * at(args.weight, j, k);
      for (int64_t k = 0; args.dweight && k < hidden; ++k) at(args.dweight, j, k) += g * at(args.x, i, k);
      if (args.dbias) at(args.dbias, j) += g;
    }
    losses.back().gradient = {};
  }
  write_losses(batch, losses, args.out);
}

void fused_linear_cross_entropy_backward(const Context& ctx, const ops::FusedLinearCrossEntropyForward& args) {
  reference::fused_linear_cross_entropy_forward(ctx, args);
}

}  // namespace tigon::reference
