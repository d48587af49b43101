#pragma once

#include <type_traits>

#include "tigon/core/half.hpp"

// e^x as exact as the storage type can show.
namespace tigon::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// e^(x − shift) for x <= shift: within 2 ulp for f32; for 16-bit storage a few f32 ulp of the larger terms.
template <class T>
__device__ __forceinline__ float exp_from(float x, float shift) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x - shift);
  } else {
    return fast_exp2((x - shift) * kLog2E);
  }
}
template <class T>
struct ExpFrom {
  float shift;

  __device__ __forceinline__ explicit ExpFrom(float from) : shift(from) {}
  __device__ __forceinline__ float operator()(float x) const { return exp_from<T>(x, shift); }
};

// The same for many x and the largest of them, all of storage type T, perhaps times one factor: of 16 bits an
// instruction less for each.
template <class T>
class ExpFromLargest {
 public:
  // shift·log2 e is rounded, which all terms feel alike. The farther from 0, the more, and for masks (−1e30, the lowest
  // bf16) without bound; but there neighbours are 128 and more apart, so that to any base the largest gives 1 and the
  // others nothing.
  __device__ __forceinline__ explicit ExpFromLargest(float largest)
      : factor_(fabsf(largest) < kFar ? kLog2E : 1.0f), offset_(-largest * factor_) {}
  __device__ __forceinline__ float operator()(float x) const { return fast_exp2(fmaf(x, factor_, offset_)); }

 private:
  static constexpr float kFar = std::is_same_v<T, bf16> ? 0x1p15f : 0x1p18f;  // 7 and 10 bits after the first

  float factor_, offset_;
};
template <>
class ExpFromLargest<float> : public ExpFrom<float> {
  using ExpFrom::ExpFrom;
};

}  // namespace tigon::cuda
