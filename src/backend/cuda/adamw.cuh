#pragma once

#include <cmath>

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

// One update as kernels get it, and its arithmetic for four elements of a thread. Types are looked up at run time: all
// threads take the same branch, and memory is the limit.
namespace tigon::cuda {

inline constexpr int kEach = 4;

struct Array {
  void* data = nullptr;
  DType dtype = DType::f32;
};

struct AdamwJob {
  Array param, grad, m, v, param_copy;
  float *m_scale, *v_scale;  // of states in 8 bits
  const float* grad_scale;   // may be null
  int64_t n;
  // param −= step_size·m / (sqrt(v)·root_correction2 + eps) + decay·param
  float beta1, beta2, one_minus_beta1, one_minus_beta2;
  float root_correction2;  // 1 / sqrt(1 − β2^step)
  float eps;
  float step_size;  // lr / (1 − β1^step)
  float decay;      // lr·weight_decay
  bool stochastic;
  uint64_t seed, first_element;
  uint32_t step, tensor_id;
};

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
__device__ __forceinline__ uint4 philox(uint64_t index, const AdamwJob& job) {
  uint4 c = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), job.step, job.tensor_id};
  auto k0 = static_cast<uint32_t>(job.seed), k1 = static_cast<uint32_t>(job.seed >> 32);
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
__device__ __forceinline__ void random_words(uint64_t element, const AdamwJob& job, uint32_t (&out)[kEach]) {
  const uint4 a = philox(element / 4, job);
  const auto skip = static_cast<uint32_t>(element % 4);  // the same for all threads
  if (skip == 0) {
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
    return;
  }
  const uint4 b = philox(element / 4 + 1, job);
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

// Every operation is named, so that the compiler fuses none: the bits are those of the CPU.
__device__ __forceinline__ void update(const AdamwJob& job, float grad_scale, float grad, float& param, float& m,
                                       float& v) {
  const float g = __fmul_rn(grad, grad_scale);
  m = __fmaf_rn(job.beta1, m, __fmul_rn(job.one_minus_beta1, g));
  v = __fmaf_rn(job.beta2, v, __fmul_rn(__fmul_rn(job.one_minus_beta2, g), g));
  const float denominator = __fmaf_rn(__fsqrt_rn(v), job.root_correction2, job.eps);
  param = __fsub_rn(param, __fmaf_rn(job.step_size, __fdiv_rn(m, denominator), __fmul_rn(job.decay, param)));
}

// The parameter and its copy, which is of the parameter as stored.
template <bool kAligned>
__device__ __forceinline__ void put_param(const AdamwJob& job, int64_t first, float (&param)[kEach]) {
  put<kAligned>(job.param, first, job.n, param);
  if (job.param_copy.data == nullptr) return;
  if (job.param.dtype != DType::f32) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      param[i] = job.param.dtype == DType::bf16 ? rounded<bf16>(param[i]) : rounded<f16>(param[i]);
    }
  }
  put<kAligned>(job.param_copy, first, job.n, param);
}

// Everything that happens to four elements of an array from `first` on.
template <bool kAligned>
__device__ __forceinline__ void update_four(const AdamwJob& job, float grad_scale, int64_t first) {
  const bool narrow_param = job.param.dtype != DType::f32;
  const bool narrow_m = job.m.dtype != DType::f32, narrow_v = job.v.dtype != DType::f32;
  const uint4 raw_param = fetch<kAligned>(job.param, first, job.n), raw_grad = fetch<kAligned>(job.grad, first, job.n);
  const uint4 raw_m = fetch<kAligned>(job.m, first, job.n), raw_v = fetch<kAligned>(job.v, first, job.n);
  float param[kEach], grad[kEach], m[kEach], v[kEach];
  widen(job.param.dtype, raw_param, param);
  widen(job.grad.dtype, raw_grad, grad);
  widen(job.m.dtype, raw_m, m);
  widen(job.v.dtype, raw_v, v);
#pragma unroll
  for (int i = 0; i < kEach; ++i) update(job, grad_scale, grad[i], param[i], m[i], v[i]);
  if (job.stochastic && (narrow_param || narrow_m || narrow_v)) {
    uint32_t words[kEach];
    random_words(job.first_element + static_cast<uint64_t>(first), job, words);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (narrow_param) param[i] = stochastic(job.param.dtype, param[i], words[i] & 0xffffu);
      if (narrow_m) m[i] = stochastic_bf16(m[i], words[i] >> 16);
      if (narrow_v) v[i] = stochastic_bf16(v[i], words[i] * ops::kBitsOfV >> 16);
    }
  }
  put<kAligned>(job.m, first, job.n, m);
  put<kAligned>(job.v, first, job.n, v);
  put_param<kAligned>(job, first, param);
}

inline Array array_of(const Tensor& t) {
  if (!t.present()) return {};
  if (size_of(t.dtype) > 4) refuse_type("adamw", t.dtype);
  return {t.data, t.dtype};
}

// Whether four elements can be taken at once.
inline bool fours_aligned(const Array& a) {
  return reinterpret_cast<uintptr_t>(a.data) % (kEach * size_of(a.dtype)) == 0;
}

inline AdamwJob adamw_job(const ops::Adamw& args) {
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1.0 - std::pow(args.beta1, step), correction2 = 1.0 - std::pow(args.beta2, step);
  return {.param = array_of(args.param),
          .grad = array_of(args.grad),
          .m = array_of(args.m),
          .v = array_of(args.v),
          .param_copy = array_of(args.param_copy),
          .m_scale = args.m_scale ? args.m_scale.as<float>() : nullptr,
          .v_scale = args.v_scale ? args.v_scale.as<float>() : nullptr,
          .grad_scale = args.grad_scale ? args.grad_scale.as<float>() : nullptr,
          .n = args.param.sizes[0],
          .beta1 = static_cast<float>(args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .one_minus_beta1 = static_cast<float>(1.0 - args.beta1),
          .one_minus_beta2 = static_cast<float>(1.0 - args.beta2),
          .root_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
          .eps = static_cast<float>(args.eps),
          .step_size = static_cast<float>(args.lr / correction1),
          .decay = static_cast<float>(args.lr * args.weight_decay),
          .stochastic = args.rounding == ops::Rounding::stochastic,
          .seed = args.seed,
          .first_element = static_cast<uint64_t>(args.first_element),
          .step = static_cast<uint32_t>(args.step),
          .tensor_id = args.tensor_id};
}

template <class Holds>
bool all_arrays(const AdamwJob& job, const Holds& holds) {
  return holds(job.param) && holds(job.grad) && holds(job.m) && holds(job.v) && holds(job.param_copy);
}

// Queues the update of one array whose states are in 8 bits.
void adamw_in_codes(const Context& ctx, const AdamwJob& job);

}  // namespace tigon::cuda
