#pragma once

#include "backend/cuda/vec.cuh"

// A weight or bias row as a norm sees it: absent, of the rows' own type, or f32.
namespace tigon::cuda {

struct Parameter {
  const void* data = nullptr;
  bool wide = false;     // f32
  float offset = 0.0f;   // added to each element
  float missing = 1.0f;  // each element of an absent row
};

inline Parameter parameter(const Tensor& t, double offset, double missing) {
  return {t ? t.data : nullptr, t && t.dtype == DType::f32, static_cast<float>(offset), static_cast<float>(missing)};
}

template <class T>
__device__ __forceinline__ float read_parameter(const Parameter& p, int64_t column) {
  if (p.data == nullptr) return p.missing;
  return p.offset +
         (p.wide ? static_cast<const float*>(p.data)[column] : load_one(static_cast<const T*>(p.data) + column));
}

// 16 bytes' worth of elements of T from `column` on; the row is 16-byte aligned and so is `column`.
template <class T>
__device__ __forceinline__ void read_parameters(const Parameter& p, int64_t column, float (&out)[kLanes<T>]) {
  constexpr int W = kLanes<T>;
  if (p.data == nullptr) {
#pragma unroll
    for (int e = 0; e < W; ++e) out[e] = p.missing;
    return;
  }
  if (p.wide) {
#pragma unroll
    for (int q = 0; q < W / 4; ++q) {
      float four[4];
      load<4>(static_cast<const float*>(p.data) + column + 4 * q, four);
#pragma unroll
      for (int e = 0; e < 4; ++e) out[4 * q + e] = four[e];
    }
  } else {
    load<W>(static_cast<const T*>(p.data) + column, out);
  }
#pragma unroll
  for (int e = 0; e < W; ++e) out[e] += p.offset;
}

// The same from any column of a row at any address; 0 outside of [0, columns).
template <class T>
__device__ __forceinline__ void read_parameters_anywhere(const Parameter& p, int column, int columns,
                                                         float (&out)[kLanes<T>]) {
  constexpr int W = kLanes<T>;
  if constexpr (sizeof(T) == 2) {
    // In words, of which the elements may begin in the middle of one: its other half is then this row's too.
    if (p.data != nullptr && !p.wide && column > 0 && column + W < columns) {
      const auto address = reinterpret_cast<uintptr_t>(static_cast<const T*>(p.data) + column);
      const auto* words = reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3});
      const bool middle = (address & 2) != 0;
      const uint32_t read[5] = {words[0], words[1], words[2], words[3], middle ? words[4] : 0};
      const unsigned shift = middle ? 16 : 0;
      const uint4 raw{__funnelshift_r(read[0], read[1], shift), __funnelshift_r(read[1], read[2], shift),
                      __funnelshift_r(read[2], read[3], shift), __funnelshift_r(read[3], read[4], shift)};
      unpack<T, W>(raw, out);
#pragma unroll
      for (int e = 0; e < W; ++e) out[e] += p.offset;
      return;
    }
  }
#pragma unroll
  for (int e = 0; e < W; ++e) {
    const bool inside = column + e >= 0 && column + e < columns;
    out[e] = inside ? read_parameter<T>(p, column + e) : 0.0f;
  }
}

}  // namespace tigon::cuda
