#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "tigon/core/error.hpp"
#include "tigon/core/tensor.hpp"

// Elements and rows of the three storage types on the device: arithmetic is f32, memory moves 16 bytes at a time.
namespace tigon::cuda {

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widen(__half x) { return __half2float(x); }

// To the storage type, to nearest even.
template <class T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half narrow<__half>(float x) {
  return __float2half_rn(x);
}

// What a value becomes by being stored.
template <class T>
__device__ inline float rounded(float x) {
  return widen(narrow<T>(x));
}

// The GPU computes with f32, bf16 and f16; f64 is for the reference on the CPU.
inline void check_storage(std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors) {
    if (t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f16) continue;
    throw Error(ErrorCode::unsupported, {.where = "device cuda",
                                         .what = "this type is not computed with on a GPU",
                                         .expected = "f32, bf16 or f16",
                                         .got = std::string(to_string(t.dtype))});
  }
}

// f(a null pointer of the storage type), the type's only carrier.
template <class F>
void with_type(DType dtype, const F& f) {
  if (dtype == DType::bf16) return f(static_cast<__nv_bfloat16*>(nullptr));
  if (dtype == DType::f16) return f(static_cast<__half*>(nullptr));
  return f(static_cast<float*>(nullptr));
}

// An element whose type is known only at run time.
__device__ inline float read_element(const void* data, DType dtype, int64_t offset) {
  switch (dtype) {
    case DType::bf16: return widen(static_cast<const __nv_bfloat16*>(data)[offset]);
    case DType::f16: return widen(static_cast<const __half*>(data)[offset]);
    default: return static_cast<const float*>(data)[offset];
  }
}

__device__ inline void write_element(void* data, DType dtype, int64_t offset, float value) {
  switch (dtype) {
    case DType::bf16: static_cast<__nv_bfloat16*>(data)[offset] = narrow<__nv_bfloat16>(value); break;
    case DType::f16: static_cast<__half*>(data)[offset] = narrow<__half>(value); break;
    default: static_cast<float*>(data)[offset] = value; break;
  }
}

__device__ inline int64_t read_index(const void* data, DType dtype, int64_t offset) {
  return dtype == DType::i32 ? static_cast<const int32_t*>(data)[offset] : static_cast<const int64_t*>(data)[offset];
}

// Elements in 16 bytes.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// 16 bytes of a row, as stored.
template <class T>
struct alignas(16) Pack {
  uint32_t words[4];

  __device__ float operator[](int e) const {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(words[e]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      return __uint_as_float(e % 2 == 0 ? words[e / 2] << 16 : words[e / 2] & 0xffff0000u);
    } else {
      const __half2 pair = *reinterpret_cast<const __half2*>(&words[e / 2]);
      return e % 2 == 0 ? __low2float(pair) : __high2float(pair);
    }
  }
  __device__ void set(const float (&values)[kPack<T>]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (sizeof(T) == 4) {
        words[w] = __float_as_uint(values[w]);
      } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        *reinterpret_cast<__nv_bfloat162*>(&words[w]) = __floats2bfloat162_rn(values[2 * w], values[2 * w + 1]);
      } else {
        *reinterpret_cast<__half2*>(&words[w]) = __floats2half2_rn(values[2 * w], values[2 * w + 1]);
      }
    }
  }
};

// For arrays that are read once: past L1.
template <class T>
__device__ inline Pack<T> load_once(const T* p) {
  Pack<T> pack;
  uint32_t(&w)[4] = pack.words;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "l"(p));
  return pack;
}

// For what other rows read again, such as weights.
template <class T>
__device__ inline Pack<T> load_pack(const T* p) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(pack.words) = *reinterpret_cast<const uint4*>(p);
  return pack;
}

template <class T>
__device__ inline void store_pack(T* p, const Pack<T>& pack) {
  *reinterpret_cast<uint4*>(p) = *reinterpret_cast<const uint4*>(pack.words);
}

// Stops the compiler from carrying the widened elements from one pass over the row to the next: twice the registers.
template <class T>
__device__ inline void keep_packed(Pack<T>& pack) {
  uint32_t(&w)[4] = pack.words;
  asm volatile("" : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3]));
}

// A parameter row as a kernel sees it: absent, of the rows' own type, or f32.
struct Parameter {
  const void* data = nullptr;
  bool wide = false;  // f32
  float bias = 0.0f;  // added to each element
  float missing = 1.0f;
};

inline Parameter parameter(const Tensor& t, double bias, double missing) {
  return {t ? t.data : nullptr, t && t.dtype == DType::f32, static_cast<float>(bias), static_cast<float>(missing)};
}

// kPack<T> elements from `column` on; the row is 16-byte aligned and so is `column`.
template <class T>
__device__ inline void read_parameter(const Parameter& p, int64_t column, float (&out)[kPack<T>]) {
  if (p.data == nullptr) {
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) out[e] = p.missing;
  } else if (p.wide) {
#pragma unroll
    for (int q = 0; q < kPack<T> / 4; ++q) {
      const Pack<float> pack = load_pack(static_cast<const float*>(p.data) + column + 4 * q);
#pragma unroll
      for (int e = 0; e < 4; ++e) out[4 * q + e] = pack[e] + p.bias;
    }
  } else {
    const Pack<T> pack = load_pack(static_cast<const T*>(p.data) + column);
#pragma unroll
    for (int e = 0; e < kPack<T>; ++e) out[e] = pack[e] + p.bias;
  }
}

template <class T>
__device__ inline float read_parameter_at(const Parameter& p, int64_t column) {
  if (p.data == nullptr) return p.missing;
  return p.bias + (p.wide ? static_cast<const float*>(p.data)[column] : widen(static_cast<const T*>(p.data)[column]));
}

// A [rows, columns] tensor as a kernel sees it.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;

  Rows() = default;
  explicit Rows(const Tensor& t) : data(t ? t.as<T>() : nullptr), stride(t ? t.strides[0] : 0) {}
  __device__ T* row(int64_t i) const { return data + i * stride; }
};

// Whether every row can be read 16 bytes at a time; absent tensors do not mind.
inline bool packable(const Tensor& t) {
  if (!t) return true;
  const int64_t unit = size_of(t.dtype);
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.sizes[t.rank - 1] * unit % 16 == 0 &&
         (t.rank == 1 || t.sizes[0] <= 1 || t.strides[0] * unit % 16 == 0);
}

}  // namespace tigon::cuda
