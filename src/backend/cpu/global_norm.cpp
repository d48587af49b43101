// global_norm: squares are summed in f64, because the square of a large f32 gradient is no f32 any more. Blocks of
// fixed size have one partial sum each; those are added in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/global_norm.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
#include "backend/cpu/squares-inl.hpp"
// clang-format on

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

double SumOfSquares(const Tensor& t, int64_t begin, int64_t end) { return sum_of_squares(t, begin, end); }

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(SumOfSquares);

namespace {

constexpr int64_t kNormBlock = ops::kNormPiece;

int64_t norm_blocks(const Tensor& t) { return (t.elements() + kNormBlock - 1) / kNormBlock; }

}  // namespace

void global_norm(const Context& ctx, const ops::GlobalNorm& args) {
  int64_t blocks = 0;
  for (const Tensor& t : args.tensors) blocks += norm_blocks(t);
  const bool read = args.pieces && args.tensors.empty();
  if (read) blocks = args.pieces.elements();
  const auto count = static_cast<int64_t>(args.tensors.size());
  const Buffer ends = ctx.scratch("global_norm_ends", count * 8);  // the block after each tensor's last
  const Buffer partials = ctx.scratch("global_norm_partials", args.pieces ? 0 : blocks * 8);
  if (ctx.measuring()) return;
  int64_t* const end = ends.as<int64_t>();
  double* const partial = args.pieces ? args.pieces.as<double>() : partials.as<double>();
  for (int64_t i = 0, sum = 0; i < count; ++i) end[i] = sum += norm_blocks(args.tensors[static_cast<size_t>(i)]);
  const auto run = HWY_DYNAMIC_DISPATCH(SumOfSquares);
  parallel_tasks(ctx, read ? 0 : blocks, [&](int64_t block) {
    const int64_t index = std::upper_bound(end, end + count, block) - end;
    const Tensor& t = args.tensors[static_cast<size_t>(index)];
    const int64_t begin = (block - (end[index] - norm_blocks(t))) * kNormBlock;
    partial[block] = run(t, begin, std::min(t.elements(), begin + kNormBlock));
  });
  if (!args.norm) return;
  double squares = 0;
  for (int64_t block = 0; block < blocks; ++block) squares += partial[block];
  const double norm = std::abs(args.scale) * std::sqrt(squares);
  *args.norm.as<float>() = static_cast<float>(norm);
  if (!args.clip) return;
  const double factor = args.max_norm > 0 ? std::min(1.0, args.max_norm / (norm + 1e-6)) : 1.0;
  *args.clip.as<float>() = std::isfinite(norm) ? static_cast<float>(factor * args.scale) : 0.0f;
}

}  // namespace tigon::cpu
#endif
