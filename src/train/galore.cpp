// GaLore ("Memory-Efficient LLM Training by Gradient Low-Rank Projection", 2024): Adam in the space of the gradient's
// largest singular vectors on its shorter side, and what it says back in full size.
#include <algorithm>

#include "tigon/ops/elementary.hpp"
#include "tigon/ops/linear.hpp"
#include "tigon/ops/low_rank.hpp"
#include "train/low_rank_matrix.hpp"

namespace tigon {

namespace {

constexpr int kIterations = 4;                 // of a subspace that begins as the last one
constexpr int64_t kAtOnce = int64_t{1} << 22;  // elements of the update in full size

// projection·gradient: [rank, columns] of a wide matrix, gradient·projectionᵀ: [rows, rank] of a tall one.
void project(const Context& ctx, const Matrix& matrix, const Tensor& projection, const Tensor& projected) {
  if (matrix.wide()) {
    ops::linear_backward(ctx, {.dy = projection, .weight = matrix.gradient, .dx = projected});
  } else {
    ops::linear_forward(ctx, {.x = matrix.gradient, .weight = projection, .y = projected});
  }
}

// The rows of the projection turn towards the gradient's largest singular vectors, the first the fastest: each time
// they are multiplied by it and its transpose, and made orthonormal. Steps that keep the projection book the same
// memory, since every step is the one that was planned.
void refresh(const LowRankUpdate& update, const Matrix& matrix, const Tensor& projection) {
  Context ctx = update.ctx;
  ctx.books_only = ctx.books_only || !update.projection_is_new();
  if (update.args.adam_step == 1) update.draw(matrix, projection, 1.0);
  const OwnedTensor there = update.in_small_space("subspace, projected", matrix, matrix.gradient.dtype, !matrix.wide());
  const OwnedTensor back(update.ctx, "subspace", DType::f32, {update.rank(), matrix.shorter()}, MemoryClass::workspace);
  for (int i = 0; i < kIterations; ++i) {
    project(ctx, matrix, projection, there);
    if (matrix.wide()) {
      ops::linear_forward(ctx, {.x = there, .weight = matrix.gradient, .y = back});
    } else {
      ops::linear_backward(ctx, {.dy = there, .x = matrix.gradient, .dweight = back});
    }
    ops::orthonormalize(ctx, {.rows = back});
    ops::unary(ctx, {.x = back, .y = projection});
  }
}

// The update in full size, some rows of it at a time.
void apply_in_full(const LowRankUpdate& update, const Matrix& matrix, const Tensor& projection,
                   const Tensor& direction) {
  const int64_t columns = matrix.columns(), most = std::clamp<int64_t>(kAtOnce / columns, 1, matrix.rows());
  const OwnedTensor full(update.ctx, "update in full size", DType::f32, {most, columns}, MemoryClass::workspace);
  for (int64_t first = 0; first < matrix.rows(); first += most) {
    const int64_t end = std::min(matrix.rows(), first + most);
    const Tensor rows = full.view.slice(0, 0, end - first);
    if (matrix.wide()) {
      ops::linear_backward(update.ctx, {.dy = projection.slice(1, first, end), .x = direction, .dweight = rows});
    } else {
      ops::linear_backward(update.ctx, {.dy = direction.slice(0, first, end), .weight = projection, .dx = rows});
    }
    update.apply(matrix, first, rows, {}, scale_of(update.train.optimizer));
  }
}

}  // namespace

void galore_update(const LowRankUpdate& update, const Matrix& matrix) {
  const Tensor projection = matrix.projection.reshape({update.rank(), matrix.shorter()});
  refresh(update, matrix, projection);
  const OwnedTensor direction = update.in_small_space("direction", matrix, DType::f32, !matrix.wide());
  {
    const OwnedTensor projected = update.in_small_space("projected gradient", matrix, DType::f32, !matrix.wide());
    project(update.ctx, matrix, projection, projected);
    update.adam(matrix, projected, direction);
  }
  // Products take two operands of a type.
  const OwnedTensor narrow = update.in_small_space("direction, narrow", matrix, projection.dtype, !matrix.wide());
  ops::unary(update.ctx, {.x = direction, .y = narrow});
  apply_in_full(update, matrix, projection, narrow);
}

}  // namespace tigon
