#include "backend/reference/loss.hpp"
#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

namespace {

// The loss of each token; gradients are written where dlogits is given.
std::vector<TokenLoss> walk(const LossBatch& batch, const Tensor& logits, const Tensor& dlogits) {
  const int64_t tokens = logits.sizes[0], vocab = logits.sizes[1];
  std::vector<TokenLoss> losses;
  for (int64_t i = 0; i < tokens; ++i) {
    std::vector<double> row(static_cast<size_t>(vocab));
    for (int64_t j = 0; j < vocab; ++j) row[static_cast<size_t>(j)] = at(logits, i, j);
    losses.push_back(token_loss(batch, i, row));
    std::vector<double>& gradient = losses.back().gradient;
    for (int64_t j = 0; dlogits && j < vocab; ++j) {
      at(dlogits, i, j) = gradient.empty() ? 0.0 : gradient[static_cast<size_t>(j)];
    }
    gradient = {};
  }
  return losses;
}

}  // namespace

void cross_entropy_forward(const Context& ctx, const ops::CrossEntropyForward& args) {
  if (ctx.measuring()) return;
  const LossBatch batch(args.target, args.class_weight, args.token_scale, Tensor{}, args.options);
  write_losses(batch, walk(batch, args.logits, args.dlogits), args.out);
}

void cross_entropy_backward(const Context& ctx, const ops::CrossEntropyBackward& args) {
  if (ctx.measuring()) return;
  const LossBatch batch(args.target, args.class_weight, args.token_scale, args.dloss, args.options);
  (void)walk(batch, args.logits, args.dlogits);
}

}  // namespace tigon::reference
