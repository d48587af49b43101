// Sums of squares in f64, because the square of a large f32 is no f32 any more.
#if defined(TIGON_CPU_SQUARES_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_SQUARES_INL_
#undef TIGON_CPU_SQUARES_INL_
#else
#define TIGON_CPU_SQUARES_INL_
#endif

#include "backend/cpu/pieces-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// Of elements [begin, end) of a contiguous tensor.
inline double sum_of_squares(const Tensor& t, int64_t begin, int64_t end) {
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

#endif  // toggled guard
