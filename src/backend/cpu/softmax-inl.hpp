// What softmax and cross_entropy share: the maximum of a row and Σ e^(x − maximum), in one read of the row.
#if defined(TIGON_CPU_SOFTMAX_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_SOFTMAX_INL_
#undef TIGON_CPU_SOFTMAX_INL_
#else
#define TIGON_CPU_SOFTMAX_INL_
#endif

#include <algorithm>
#include <limits>

#include "backend/cpu/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// v where lanes are in use, `other` elsewhere.
TIGON_SIMD V used_or(V v, V, Full) { return v; }
TIGON_SIMD V used_or(V v, V other, Part part) {
  return hn::IfThenElse(hn::FirstN(D(), static_cast<size_t>(part.n)), v, other);
}

// The largest f(j, …) of a row, in four interleaved vectors. NaN may be passed over: sums show it.
template <class F>
TIGON_SIMD float max_row(int64_t n, const F& f) {
  const int64_t step = lanes();
  const V lowest = set(-std::numeric_limits<float>::infinity());
  V m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  int64_t j = 0;
  for (; j + 4 * step <= n; j += 4 * step) {
    m0 = hn::Max(m0, f(j, Full{}));
    m1 = hn::Max(m1, f(j + step, Full{}));
    m2 = hn::Max(m2, f(j + 2 * step, Full{}));
    m3 = hn::Max(m3, f(j + 3 * step, Full{}));
  }
  for (; j + step <= n; j += step) m0 = hn::Max(m0, f(j, Full{}));
  if (j < n) m1 = hn::Max(m1, used_or(f(j, Part{n - j}), lowest, Part{n - j}));
  return hn::GetLane(hn::MaxOfLanes(D(), hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

struct RowSoftmax {
  float max;            // of the values as loaded; −inf for an empty row
  float shift;          // bend(max), what is subtracted before the exponent; 0 while all values are −inf
  double sum;           // Σ e^(bend(x) − shift); NaN if any value is NaN or +inf
  int64_t first_block;  // where the block begins that holds the first largest value
};

// Elements worked on at a time: they stay in L1 between the maximum and the exponent.
inline constexpr int64_t kSoftmaxBlock = 1024;

// f(j, …) loads values; `bend` is a non-decreasing function of them (identity, or a soft cap).
template <class F, class Bend>
TIGON_SIMD RowSoftmax softmax_row(int64_t n, const F& f, const Bend& bend) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  RowSoftmax row{.max = kLowest, .shift = 0.0f, .sum = 0.0, .first_block = 0};
  for (int64_t begin = 0; begin < n; begin += kSoftmaxBlock) {
    const int64_t count = std::min(kSoftmaxBlock, n - begin);
    const float block_max = max_row(count, [&](int64_t j, auto part) HWY_ATTR { return f(begin + j, part); });
    if (block_max > row.max) {
      const float shift = hn::GetLane(bend(set(block_max)));
      // Before the first finite value the sum is 0, or NaN for good.
      if (row.max > kLowest) row.sum *= static_cast<double>(hn::GetLane(exp_nonpositive(set(row.shift - shift))));
      row.max = block_max;
      row.shift = shift;
      row.first_block = begin;
    }
    const V shift = set(row.shift);
    row.sum += static_cast<double>(sum_row(count, [&](int64_t j, auto part) HWY_ATTR {
      return used_or(exp_nonpositive(hn::Sub(bend(f(begin + j, part)), shift)), zero(), part);
    }));
  }
  return row;
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
