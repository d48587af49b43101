#pragma once

#include "backend/cuda/adamw.cuh"
#include "backend/dynamic_map.hpp"

// AdamW over states in 8 bits (backend/dynamic_map.hpp): a warp has a block of 256 elements in its registers, so that
// its scale is found by shuffles and everything is read and written once. The tables are looked up in shared memory.
namespace tigon::cuda {

inline constexpr int kCodeBlock = static_cast<int>(ops::kCodeBlock);
inline constexpr int kFours = kCodeBlock / (32 * kEach);  // of a lane, each beside its neighbours'

// Signed and unsigned.
__device__ const DynamicTables kDeviceTables[2] = {DynamicTables(true), DynamicTables(false)};

// One map and its cells in shared memory.
struct SharedTables {
  float map[256];
  uint32_t cells[kCells];
};
static_assert(sizeof(SharedTables) == sizeof(DynamicTables));

// By all threads of a block, which then wait for one another.
__device__ __forceinline__ void load_tables(SharedTables (&tables)[2]) {
  const auto* from = reinterpret_cast<const uint32_t*>(kDeviceTables);
  auto* to = reinterpret_cast<uint32_t*>(tables);
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(tables) / 4); i += blockDim.x)
    to[i] = from[i];
  __syncthreads();
}

// Four codes, the first in the lowest byte.
template <bool kAligned>
__device__ __forceinline__ uint32_t fetch_codes(const Array& array, int64_t first, int64_t n) {
  const auto* p = static_cast<const uint8_t*>(array.data) + first;
  if (kAligned && first + kEach <= n) return *reinterpret_cast<const uint32_t*>(p);
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i < n) codes |= static_cast<uint32_t>(p[i]) << 8 * i;
  }
  return codes;
}
template <bool kAligned>
__device__ __forceinline__ void put_codes(const Array& array, int64_t first, int64_t n, uint32_t codes) {
  auto* p = static_cast<uint8_t*>(array.data) + first;
  if (kAligned && first + kEach <= n) {
    *reinterpret_cast<uint32_t*>(p) = codes;
    return;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i < n) p[i] = static_cast<uint8_t>(codes >> 8 * i);
  }
}

// The nearest entry's code; `scaled` is finite.
template <bool kSigned>
__device__ __forceinline__ uint32_t code_of(float scaled, const SharedTables& tables) {
  const uint32_t bits = __float_as_uint(fminf(fabsf(scaled), 1.0f));
  const uint32_t cell = max(bits >> 16, kFirstCell) - kFirstCell, entry = tables.cells[cell];
  const uint32_t negative = kSigned ? __float_as_uint(scaled) >> 31 : 0;
  const uint32_t code = (entry >> 17) + ((bits & 0xffffu) + negative > (entry & kCellMiddle) ? 1 : 0);
  if (!kSigned) return code;
  return negative ? kZeroOfSigned - min(code, uint32_t{kZeroOfSigned}) : kZeroOfSigned + code;  // −1 has no entry
}

// Codes a lane's share of a block of values; all lanes of the warp together.
template <bool kSigned, bool kAligned>
__device__ __forceinline__ void put_moment(const float (&values)[kFours][kEach], const SharedTables& tables,
                                           const Array& codes, float* scale_out, int64_t first, int64_t n) {
  float largest = 0;
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) largest = fmaxf(largest, fabsf(values[k][i]));
  }
  largest = warp_reduce(largest, Max());
  const float scale = largest < 0x1p-126f ? 0.0f : largest;
  if (threadIdx.x % 32 == 0) *scale_out = scale;
  const float by = scale > 0 ? __fdiv_rn(1.0f, scale) : 0.0f;
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    uint32_t four = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) four |= code_of<kSigned>(__fmul_rn(values[k][i], by), tables) << 8 * i;
    put_codes<kAligned>(codes, first + k * 32 * kEach, n, four);
  }
}

// Everything that happens to block `block` of an array, by one warp.
template <bool kAligned>
__device__ __forceinline__ void update_code_block(const AdamwJob& job, float grad_scale, int64_t block,
                                                  const SharedTables (&tables)[2]) {
  const int64_t first = block * kCodeBlock + threadIdx.x % 32 * kEach;
  const float m_scale = job.m_scale[block], v_scale = job.v_scale[block];
  uint4 raw_param[kFours], raw_grad[kFours];
  uint32_t m_codes[kFours], v_codes[kFours];
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    const int64_t at = first + k * 32 * kEach;
    raw_param[k] = fetch<kAligned>(job.param, at, job.n);
    raw_grad[k] = fetch<kAligned>(job.grad, at, job.n);
    m_codes[k] = fetch_codes<kAligned>(job.m, at, job.n);
    v_codes[k] = fetch_codes<kAligned>(job.v, at, job.n);
  }
  float m[kFours][kEach], v[kFours][kEach], strange = 0;
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    const int64_t at = first + k * 32 * kEach;
    float param[kEach], grad[kEach];
    widen(job.param.dtype, raw_param[k], param);
    widen(job.grad.dtype, raw_grad[k], grad);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      m[k][i] = __fmul_rn(tables[0].map[m_codes[k] >> 8 * i & 0xffu], m_scale);
      v[k][i] = __fmul_rn(tables[1].map[v_codes[k] >> 8 * i & 0xffu], v_scale);
      update(job, grad_scale, grad[i], param[i], m[k][i], v[k][i]);
      strange = __fmaf_rn(v[k][i], 0.0f, __fmaf_rn(m[k][i], 0.0f, strange));  // NaN, where one is not finite
    }
    if (job.stochastic && job.param.dtype != DType::f32) {
      uint32_t words[kEach];
      random_words(job.first_element + static_cast<uint64_t>(at), job.random, words);
#pragma unroll
      for (int i = 0; i < kEach; ++i) param[i] = stochastic(job.param.dtype, param[i], words[i] & 0xffffu);
    }
    put_param<kAligned>(job.param, job.param_copy, at, job.n, param);
  }
  // What is not finite any more would take its block with it, and what is behind the end is nobody's.
  if (strange != 0 || (block + 1) * kCodeBlock > job.n) {
#pragma unroll
    for (int k = 0; k < kFours; ++k) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const bool keep = isfinite(m[k][i]) && isfinite(v[k][i]) && first + k * 32 * kEach + i < job.n;
        m[k][i] = keep ? m[k][i] : 0.0f;
        v[k][i] = keep ? v[k][i] : 0.0f;
      }
    }
  }
  put_moment<true, kAligned>(m, tables[0], job.m, job.m_scale + block, first, job.n);
  put_moment<false, kAligned>(v, tables[1], job.v, job.v_scale + block, first, job.n);
}

}  // namespace tigon::cuda
