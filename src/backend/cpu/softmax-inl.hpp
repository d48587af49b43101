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
  float shift;          // what is subtracted before the exponent: near bend(max), at most kHeadroom below it
  double sum;           // Σ e^(bend(x) − shift); NaN if any value is NaN or +inf
  int64_t first_block;  // where the block begins that holds the first largest value
};

// Elements worked on at a time: they stay in L1 if they have to be looked at twice.
inline constexpr int64_t kSoftmaxBlock = 1024;
// e^30·(elements of a row) is far from overflow, so a shift this much below the maximum serves as well.
inline constexpr float kHeadroom = 30.0f;

// Maximum and Σ e^(bend(x) − shift) of one block in one loop.
template <class F, class Bend>
TIGON_SIMD float max_and_sum(int64_t n, const F& f, const Bend& bend, V shift, float& sum) {
  const int64_t step = lanes();
  const V lowest = set(-std::numeric_limits<float>::infinity());
  V m0 = lowest, m1 = lowest, s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  const auto term = [&](V v) HWY_ATTR { return exp_nonpositive(hn::Sub(bend(v), shift)); };
  int64_t j = 0;
  for (; j + 4 * step <= n; j += 4 * step) {
    const V v0 = f(j, Full{}), v1 = f(j + step, Full{}), v2 = f(j + 2 * step, Full{}), v3 = f(j + 3 * step, Full{});
    s0 = hn::Add(s0, term(v0));
    s1 = hn::Add(s1, term(v1));
    s2 = hn::Add(s2, term(v2));
    s3 = hn::Add(s3, term(v3));
    m0 = hn::Max(m0, hn::Max(v0, v1));
    m1 = hn::Max(m1, hn::Max(v2, v3));
  }
  for (; j + step <= n; j += step) {
    const V v = f(j, Full{});
    s0 = hn::Add(s0, term(v));
    m0 = hn::Max(m0, v);
  }
  if (j < n) {
    const Part part{n - j};
    const V v = f(j, part);
    s1 = hn::Add(s1, used_or(term(v), zero(), part));
    m1 = hn::Max(m1, used_or(v, lowest, part));
  }
  sum = hn::GetLane(hn::SumOfLanes(D(), hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  return hn::GetLane(hn::MaxOfLanes(D(), hn::Max(m0, m1)));
}

// f(j, …) loads values; `bend` is a non-decreasing function of them (identity, or a soft cap). One read of the row: the
// shift is the first block's maximum, and moves only when a later one would leave the headroom.
template <class F, class Bend>
TIGON_SIMD RowSoftmax softmax_row(int64_t n, const F& f, const Bend& bend) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  RowSoftmax row{.max = kLowest, .shift = 0.0f, .sum = 0.0, .first_block = 0};
  for (int64_t begin = 0; begin < n; begin += kSoftmaxBlock) {
    const int64_t count = std::min(kSoftmaxBlock, n - begin);
    const auto value = [&](int64_t j, auto part) HWY_ATTR { return f(begin + j, part); };
    const bool first_finite = !(row.max > kLowest);  // no shift yet
    float sum = 0.0f;
    float block_max = first_finite ? max_row(count, value) : max_and_sum(count, value, bend, set(row.shift), sum);
    const float top = hn::GetLane(bend(set(block_max)));
    if (first_finite || top - row.shift > kHeadroom) {
      // Before the first finite value the sum is 0, or NaN for good.
      if (!first_finite) row.sum *= static_cast<double>(hn::GetLane(exp_nonpositive(set(row.shift - top))));
      row.shift = block_max > kLowest ? top : 0.0f;
      (void)max_and_sum(count, value, bend, set(row.shift), sum);
    }
    if (block_max > row.max) {
      row.max = block_max;
      row.first_block = begin;
    }
    row.sum += static_cast<double>(sum);
  }
  return row;
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
