#pragma once

#include <cmath>

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/fours.cuh"
#include "backend/cuda/row_launch.cuh"

// One update as kernels get it, and its arithmetic for four elements of a thread.
namespace tigon::cuda {

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
  RandomStream random;
  uint64_t first_element;
};

// Every operation is named, so that the compiler fuses none: the bits are those of the CPU.
__device__ __forceinline__ void update(const AdamwJob& job, float grad_scale, float grad, float& param, float& m,
                                       float& v) {
  const float g = __fmul_rn(grad, grad_scale);
  m = __fmaf_rn(job.beta1, m, __fmul_rn(job.one_minus_beta1, g));
  v = __fmaf_rn(job.beta2, v, __fmul_rn(__fmul_rn(job.one_minus_beta2, g), g));
  const float denominator = __fmaf_rn(__fsqrt_rn(v), job.root_correction2, job.eps);
  param = __fsub_rn(param, __fmaf_rn(job.step_size, __fdiv_rn(m, denominator), __fmul_rn(job.decay, param)));
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
    random_words(job.first_element + static_cast<uint64_t>(first), job.random, words);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (narrow_param) param[i] = stochastic(job.param.dtype, param[i], words[i] & 0xffffu);
      if (narrow_m) m[i] = stochastic_bf16(m[i], words[i] >> 16);
      if (narrow_v) v[i] = stochastic_bf16(v[i], words[i] * ops::kBitsOfV >> 16);
    }
  }
  put<kAligned>(job.m, first, job.n, m);
  put<kAligned>(job.v, first, job.n, v);
  put_param<kAligned>(job.param, job.param_copy, first, job.n, param);
}

inline AdamwJob adamw_job(const ops::Adamw& args) {
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1.0 - std::pow(args.beta1, step), correction2 = 1.0 - std::pow(args.beta2, step);
  return {.param = array_of("adamw", args.param),
          .grad = array_of("adamw", args.grad),
          .m = array_of("adamw", args.m),
          .v = array_of("adamw", args.v),
          .param_copy = array_of("adamw", args.param_copy),
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
          .random = {.seed = args.seed, .step = static_cast<uint32_t>(args.step), .tensor = args.tensor_id},
          .first_element = static_cast<uint64_t>(args.first_element)};
}

template <class Holds>
bool all_arrays(const AdamwJob& job, const Holds& holds) {
  return holds(job.param) && holds(job.grad) && holds(job.m) && holds(job.v) && holds(job.param_copy);
}

// Queues the update of one array whose states are in 8 bits.
void adamw_in_codes(const Context& ctx, const AdamwJob& job);

}  // namespace tigon::cuda
