#include <algorithm>
#include <cmath>

#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

namespace {

// Σ of a vector into a vector of one element: the rows of a folded view first, so that many threads can work.
void sum_all(const Context& ctx, const Chain& chain, const Tensor& x, const Tensor& y) {
  constexpr int64_t kColumns = 4096;
  const int64_t n = x.sizes[0], rows = n / kColumns, rest = n % kColumns;
  const OwnedTensor sums = chain.make("row_sums", x.dtype, {rows + 1});
  const Tensor whole = x.slice(0, 0, rows * kColumns);
  reduce(ctx, {.x = whole.reshape({rows, kColumns}), .y = sums.view.slice(0, 0, rows)});
  reduce(ctx, {.x = x.slice(0, n - rest, n).reshape({1, rest}), .y = sums.view.slice(0, rows, rows + 1)});
  reduce(ctx, {.x = sums.view.reshape({1, rows + 1}), .y = y});
}

}  // namespace

// torch's clip_grad_norm_: each tensor squared and summed, then the sums. Where the fused op gives a clip of 0 for NaN,
// here it is NaN, as there.
void global_norm(const Context& ctx, const GlobalNorm& args) {
  const Chain chain(ctx);
  const DType wide = args.norm.dtype;
  const auto count = static_cast<int64_t>(args.tensors.size());
  const OwnedTensor sums = chain.make("tensor_sums", wide, {count});
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& t = args.tensors[static_cast<size_t>(i)];
    const Tensor flat = t.reshape({t.elements()});
    const OwnedTensor squares = chain.map("squares", UnaryOp::square, flat, wide, args.scale);
    sum_all(ctx, chain, squares, sums.view.slice(0, i, i + 1));
  }
  const OwnedTensor total = chain.make("total", wide, {1});
  reduce(ctx, {.x = sums.view.reshape({1, count}), .y = total});
  unary(ctx, {.op = UnaryOp::sqrt, .x = total, .y = args.norm});
  if (!args.clip) return;
  if (args.max_norm == 0) return unary(ctx, {.x = total, .y = args.clip, .alpha = 0, .beta = args.scale});
  // min(1, max_norm / (norm + 1e-6)), written as a maximum: −max(−1, −…).
  const OwnedTensor pair = chain.make("clip_pair", wide, {1, 2});
  const Tensor one = pair.view.slice(1, 0, 1).reshape({1}), ratio = pair.view.slice(1, 1, 2).reshape({1});
  unary(ctx, {.x = one, .y = one, .alpha = 0, .beta = -1});
  const OwnedTensor limit = chain.make("max_norm", wide, {1});
  unary(ctx, {.x = limit, .y = limit, .alpha = 0, .beta = -args.max_norm});
  unary(ctx, {.x = args.norm, .y = total, .beta = 1e-6});
  chain.zip_to(BinaryOp::div, limit, total, ratio);
  reduce(ctx, {.op = ReduceOp::max, .x = pair, .y = args.clip});
  unary(ctx, {.x = args.clip, .y = args.clip, .alpha = -args.scale});
}

}  // namespace tigon::ops::unfused
