#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "tigon/core/half.hpp"
#include "tigon/core/tensor.hpp"

// Storage types to and from f32 on the device, single and in vectors, and reductions whose order is fixed.
namespace tigon::cuda {

template <int kBytes>
struct RawBits;
template <>
struct RawBits<2> {
  using Type = uint16_t;
};
template <>
struct RawBits<4> {
  using Type = uint32_t;
};
template <>
struct RawBits<8> {
  using Type = uint2;
};
template <>
struct RawBits<16> {
  using Type = uint4;
};

// N elements of T as they lie in memory, in one register or a few.
template <class T, int N>
using Raw = typename RawBits<N* static_cast<int>(sizeof(T))>::Type;

// Elements of T in 16 bytes.
template <class T>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(T));

// Needs p aligned to N elements.
template <int N, class T>
__device__ __forceinline__ Raw<T, N> load_raw(const T* p) {
  return *reinterpret_cast<const Raw<T, N>*>(p);
}
template <int N, class T>
__device__ __forceinline__ void store_raw(T* p, Raw<T, N> raw) {
  *reinterpret_cast<Raw<T, N>*>(p) = raw;
}

// 16 bytes that are read once: past L1, and the line's neighbour with it.
template <class T>
__device__ __forceinline__ Raw<T, kLanes<T>> load_raw_once(const T* p) {
  uint4 raw;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
               : "l"(p)
               : "memory");
  return raw;
}

// Stops the compiler from carrying the widened elements from one pass over a row to the next: twice the registers.
__device__ __forceinline__ void keep_packed(uint4& raw) {
  asm volatile("" : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w));
}

template <class T, int N>
__device__ __forceinline__ void unpack(const Raw<T, N>& raw, float (&out)[N]) {
  if constexpr (std::is_same_v<T, float>) {
    const auto* words = reinterpret_cast<const uint32_t*>(&raw);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = __uint_as_float(words[i]);
  } else if constexpr (N == 1) {
    out[0] = std::is_same_v<T, bf16> ? __uint_as_float(static_cast<uint32_t>(raw) << 16)
                                     : __half2float(__ushort_as_half(raw));
  } else {
    const auto* words = reinterpret_cast<const uint32_t*>(&raw);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      if constexpr (std::is_same_v<T, bf16>) {
        out[2 * i] = __uint_as_float(words[i] << 16);
        out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
      } else {
        out[2 * i] = __half2float(__ushort_as_half(static_cast<uint16_t>(words[i] & 0xffffu)));
        out[2 * i + 1] = __half2float(__ushort_as_half(static_cast<uint16_t>(words[i] >> 16)));
      }
    }
  }
}

// Rounds to nearest even.
template <class T>
__device__ __forceinline__ uint16_t half_bits(float v) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(v));
  } else {
    return __half_as_ushort(__float2half_rn(v));
  }
}

template <class T, int N>
__device__ __forceinline__ Raw<T, N> pack(const float (&in)[N]) {
  Raw<T, N> raw;
  if constexpr (std::is_same_v<T, float>) {
    auto* words = reinterpret_cast<uint32_t*>(&raw);
#pragma unroll
    for (int i = 0; i < N; ++i) words[i] = __float_as_uint(in[i]);
  } else if constexpr (N == 1) {
    raw = half_bits<T>(in[0]);
  } else {
    auto* words = reinterpret_cast<uint32_t*>(&raw);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      if constexpr (std::is_same_v<T, bf16>) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
        words[i] = *reinterpret_cast<const uint32_t*>(&two);
      } else {
        const __half2 two = __floats2half2_rn(in[2 * i], in[2 * i + 1]);
        words[i] = *reinterpret_cast<const uint32_t*>(&two);
      }
    }
  }
  return raw;
}

template <int N, class T>
__device__ __forceinline__ void load(const T* p, float (&out)[N]) {
  unpack<T, N>(load_raw<N>(p), out);
}
template <int N, class T>
__device__ __forceinline__ void store(T* p, const float (&in)[N]) {
  store_raw<N>(p, pack<T, N>(in));
}

template <class T>
__device__ __forceinline__ float load_one(const T* p) {
  float out[1];
  load<1>(p, out);
  return out[0];
}
template <class T>
__device__ __forceinline__ void store_one(T* p, float v) {
  const float in[1] = {v};
  store<1>(p, in);
}

// v as T would store it.
template <class T>
__device__ __forceinline__ float rounded(float v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    const float in[1] = {v};
    float out[1];
    unpack<T, 1>(pack<T, 1>(in), out);
    return out[0];
  }
}

// The rows of a [rows, columns] tensor; null where the tensor is absent.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;
  __device__ __forceinline__ T* at(int64_t row) const { return data + row * stride; }
};
template <class T>
Rows<T> rows_of(const Tensor& t) {
  if (!t.present()) return {};
  return {t.as<T>(), t.strides[0]};
}

// --- reductions: all threads get the result, in an order given by the number of threads alone ---

struct Sum {
  template <class V>
  __device__ __forceinline__ V operator()(V a, V b) const {
    return a + b;
  }
};
struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }  // passes over NaN
};
struct Min {
  __device__ __forceinline__ int64_t operator()(int64_t a, int64_t b) const { return a < b ? a : b; }
};

template <class V, class Combine>
__device__ __forceinline__ V warp_reduce(V v, Combine combine) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = combine(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

// For blocks of whole warps along x. `shared` has room for 32; it may be used again after the call.
template <class V, class Combine>
__device__ __forceinline__ V block_reduce(V v, V identity, Combine combine, V* shared) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  v = warp_reduce(v, combine);
  if (warps == 1) return v;
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  v = warp_reduce(lane < warps ? shared[lane] : identity, combine);
  __syncthreads();
  return v;
}

}  // namespace tigon::cuda
