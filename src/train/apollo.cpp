// APOLLO ("SGD-like Memory, AdamW-level Performance", 2024): the gradient itself, each channel of it scaled as Adam
// scales a random projection of that channel.
#include <cmath>

#include "tigon/ops/linear.hpp"
#include "tigon/ops/low_rank.hpp"
#include "train/low_rank_matrix.hpp"

namespace tigon {

namespace {

// The gradient times a random matrix, which is drawn from the seed in every step anew: [channels, rank].
void project(const LowRankUpdate& update, const Matrix& matrix, const Tensor& projected) {
  const int64_t rank = update.rank(), rows = matrix.wide() ? matrix.shorter() : rank,
                columns = matrix.wide() ? rank : matrix.shorter();
  const OwnedTensor random(update.ctx, "random projection", matrix.gradient.dtype, {rows, columns},
                           MemoryClass::workspace);
  update.draw(matrix, random, 1 / std::sqrt(static_cast<double>(rank)));
  if (matrix.wide()) {
    ops::linear_backward(update.ctx, {.dy = matrix.gradient, .x = random, .dweight = projected});
  } else {
    ops::linear_forward(update.ctx, {.x = matrix.gradient, .weight = random, .y = projected});
  }
}

}  // namespace

void apollo_update(const LowRankUpdate& update, const Matrix& matrix) {
  const OptimizerOptions& options = update.train.optimizer;
  const OwnedTensor projected = update.in_small_space("projected gradient", matrix, DType::f32, true);
  project(update, matrix, projected);
  const OwnedTensor direction = update.in_small_space("direction", matrix, DType::f32, true);
  update.adam(matrix, projected, direction);
  const OwnedTensor factors(update.ctx, "factors of channels", DType::f32, {matrix.channels()}, MemoryClass::workspace);
  ops::apollo_factors(update.ctx, {.projected = projected,
                                   .direction = direction,
                                   .grad = matrix.gradient,
                                   .grad_scale = update.grad_scale,
                                   .last = matrix.last,
                                   .factors = factors,
                                   .columns = matrix.wide(),
                                   .whole = options.kind == Optimizer::apollo_mini,
                                   .gain = std::sqrt(scale_of(options))});
  update.apply(matrix, 0, matrix.gradient, factors, 1.0);
}

}  // namespace tigon
