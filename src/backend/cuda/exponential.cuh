#pragma once

#include <type_traits>

// e^x as exact as the storage type can show.
namespace tigon::cuda {

// e^(x − shift) for x <= shift: within 2 ulp for f32; for 16-bit storage a few f32 ulp of the larger terms, at two
// instructions.
template <class T>
__device__ __forceinline__ float exp_from(float x, float shift) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x - shift);
  } else {
    constexpr float kLog2e = 1.4426950408889634f;
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(x, kLog2e, -shift * kLog2e)));
    return y;
  }
}

}  // namespace tigon::cuda
