#pragma once

#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"
#include "tigon/core/philox.hpp"

// Four elements of a thread, as optimizers update them. Types are looked up at run time: all threads take the same
// branch, and memory is the limit.
namespace tigon::cuda {

inline constexpr int kEach = 4;

struct Array {
  void* data = nullptr;
  DType dtype = DType::f32;
};

inline Array array_of(const char* where, const Tensor& t) {
  if (!t.present()) return {};
  if (size_of(t.dtype) > 4) refuse_type(where, t.dtype);
  return {t.data, t.dtype};
}

// Whether four elements can be taken at once.
inline bool fours_aligned(const Array& a) {
  return reinterpret_cast<uintptr_t>(a.data) % (kEach * size_of(a.dtype)) == 0;
}

// Four elements as they lie in memory.
template <bool kAligned>
__device__ __forceinline__ uint4 fetch(const Array& array, int64_t first, int64_t n) {
  uint4 raw = {};
  if (array.dtype == DType::f32) {
    const auto* p = static_cast<const float*>(array.data) + first;
    if (kAligned && first + kEach <= n) {
      raw = *reinterpret_cast<const uint4*>(p);
    } else {
      if (first < n) raw.x = __float_as_uint(p[0]);
      if (first + 1 < n) raw.y = __float_as_uint(p[1]);
      if (first + 2 < n) raw.z = __float_as_uint(p[2]);
      if (first + 3 < n) raw.w = __float_as_uint(p[3]);
    }
  } else {
    const auto* p = static_cast<const uint16_t*>(array.data) + first;
    if (kAligned && first + kEach <= n) {
      const uint2 two = *reinterpret_cast<const uint2*>(p);
      raw.x = two.x;
      raw.y = two.y;
    } else {
      if (first < n) raw.x = p[0];
      if (first + 1 < n) raw.x |= static_cast<uint32_t>(p[1]) << 16;
      if (first + 2 < n) raw.y = p[2];
      if (first + 3 < n) raw.y |= static_cast<uint32_t>(p[3]) << 16;
    }
  }
  return raw;
}

__device__ __forceinline__ void widen(DType dtype, const uint4& raw, float (&out)[kEach]) {
  switch (dtype) {
    case DType::bf16: return unpack<bf16, kEach>(uint2{raw.x, raw.y}, out);
    case DType::f16: return unpack<f16, kEach>(uint2{raw.x, raw.y}, out);
    default: return unpack<float, kEach>(raw, out);
  }
}

template <bool kAligned, class T>
__device__ __forceinline__ void put_as(void* data, int64_t first, int64_t n, const float (&values)[kEach]) {
  T* p = static_cast<T*>(data) + first;
  if (kAligned && first + kEach <= n) {
    store<kEach>(p, values);
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (first + i < n) store_one(p + i, values[i]);
    }
  }
}
template <bool kAligned>
__device__ __forceinline__ void put(const Array& array, int64_t first, int64_t n, const float (&values)[kEach]) {
  switch (array.dtype) {
    case DType::bf16: return put_as<kAligned, bf16>(array.data, first, n, values);
    case DType::f16: return put_as<kAligned, f16>(array.data, first, n, values);
    default: return put_as<kAligned, float>(array.data, first, n, values);
  }
}

// Philox::block of tigon/core/philox.hpp.
__device__ __forceinline__ uint4 philox(uint64_t index, const RandomStream& random) {
  uint4 c = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), random.step, random.tensor};
  auto k0 = static_cast<uint32_t>(random.seed), k1 = static_cast<uint32_t>(random.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    c = {high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// RandomStream::bits of four elements in a row, which may lie in two blocks.
__device__ __forceinline__ void random_words(uint64_t element, const RandomStream& random, uint32_t (&out)[kEach]) {
  const uint4 a = philox(element / 4, random);
  const auto skip = static_cast<uint32_t>(element % 4);  // the same for all threads
  if (skip == 0) {
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
    return;
  }
  const uint4 b = philox(element / 4 + 1, random);
  if (skip == 1) {
    out[0] = a.y, out[1] = a.z, out[2] = a.w, out[3] = b.x;
  } else if (skip == 2) {
    out[0] = a.z, out[1] = a.w, out[2] = b.x, out[3] = b.y;
  } else {
    out[0] = a.w, out[1] = b.x, out[2] = b.y, out[3] = b.z;
  }
}

// v as a value of the type, up or down by chance; random holds 16 bits. NaN and infinity stay.
__device__ __forceinline__ float stochastic_bf16(float v, uint32_t random) {
  const uint32_t bits = __float_as_uint(v);
  return (bits & 0x7f800000u) == 0x7f800000u ? v : __uint_as_float((bits + random) & 0xffff0000u);
}
__device__ __forceinline__ float stochastic_f16(float v, uint32_t random) {
  const float magnitude = fabsf(v);
  if (!(magnitude < 0x1p17f)) return v;  // beyond f16's range there is nothing to choose
  // The step of f16 at this magnitude: 2^(exponent − 10), but not below the subnormals' 2^-24.
  const float power = __uint_as_float(__float_as_uint(magnitude) & 0x7f800000u);
  const float step = fmaxf(power, 0x1p-14f) * 0x1p-10f;
  const float steps = __fdiv_rn(magnitude, step);
  const float cut = floorf(steps);
  const float chance = fmaf(steps - cut, 65536.0f, static_cast<float>(random));
  return copysignf((cut + (chance >= 65536.0f ? 1.0f : 0.0f)) * step, v);
}
__device__ __forceinline__ float stochastic(DType dtype, float v, uint32_t random) {
  return dtype == DType::bf16 ? stochastic_bf16(v, random) : stochastic_f16(v, random);
}

// The parameter and its copy, which is of the parameter as stored.
template <bool kAligned>
__device__ __forceinline__ void put_param(const Array& to, const Array& copy, int64_t first, int64_t n,
                                          float (&param)[kEach]) {
  put<kAligned>(to, first, n, param);
  if (copy.data == nullptr) return;
  if (to.dtype != DType::f32) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      param[i] = to.dtype == DType::bf16 ? rounded<bf16>(param[i]) : rounded<f16>(param[i]);
  }
  put<kAligned>(copy, first, n, param);
}

}  // namespace tigon::cuda
