// global_norm: squares are summed in f64, because the square of a large f32 gradient is no f32 any more. Blocks of
// fixed size have one partial sum each; those are added in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/global_norm.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
#include "backend/cpu/pieces-inl.hpp"
// clang-format on

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

double SumOfSquares(const Tensor& t, int64_t begin, int64_t end) {
  HWY_ALIGN float buffer[kPiece];
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d32;
  const auto step = static_cast<int64_t>(hn::Lanes(d64));
  auto s0 = hn::Zero(d64), s1 = hn::Zero(d64), s2 = hn::Zero(d64), s3 = hn::Zero(d64);
  double rest = 0;
  for (int64_t first = begin; first < end; first += kPiece) {
    const int64_t n = std::min(kPiece, end - first);
    const float* p = read_piece(t, first, 1, n, buffer);
    const auto wide = [&](int64_t j) HWY_ATTR { return hn::PromoteTo(d64, hn::LoadU(d32, p + j)); };
    int64_t j = 0;
    for (; j + 4 * step <= n; j += 4 * step) {
      const auto v0 = wide(j), v1 = wide(j + step), v2 = wide(j + 2 * step), v3 = wide(j + 3 * step);
      s0 = hn::MulAdd(v0, v0, s0);
      s1 = hn::MulAdd(v1, v1, s1);
      s2 = hn::MulAdd(v2, v2, s2);
      s3 = hn::MulAdd(v3, v3, s3);
    }
    for (; j < n; ++j) rest += static_cast<double>(p[j]) * static_cast<double>(p[j]);
  }
  return hn::GetLane(hn::SumOfLanes(d64, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)))) + rest;
}

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
