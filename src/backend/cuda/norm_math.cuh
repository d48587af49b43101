#pragma once

#include "backend/cuda/parameter.cuh"

// The formulas of the three norms, element by element, for the fast kernels and for the plain ones.
namespace tigon::cuda {

enum class Norm { rms, add_rms, layer };

// x as the weight meets it.
template <Norm kNorm>
__device__ __forceinline__ float normal_of(float x, float mean, float rstd) {
  return kNorm == Norm::layer ? (x - mean) * rstd : x * rstd;
}

// As stored and widened again.
template <class T, int W>
__device__ __forceinline__ void round_all(float (&values)[W]) {
  if constexpr (!std::is_same_v<T, float>) unpack<T, W>(pack<T, W>(values), values);
}

// The sums over a row that backward needs: Σ m·x for rmsnorm; Σ m·x̂ and Σ m for layernorm, with m = dy·weight.
template <Norm kNorm>
inline constexpr int kRowSums = kNorm == Norm::layer ? 2 : 1;

template <Norm kNorm>
__device__ __forceinline__ void add_terms(float (&sums)[kRowSums<kNorm>], float m, float x, float normal) {
  if constexpr (kNorm == Norm::layer) {
    sums[0] = fmaf(m, normal, sums[0]);
    sums[1] += m;
  } else {
    sums[0] = fmaf(m, x, sums[0]);
  }
}

// dx of one element; `means` are the sums over the row divided by its length.
template <Norm kNorm>
class Gradient {
 public:
  __device__ __forceinline__ Gradient(float mean, float rstd, const float (&means)[kRowSums<kNorm>])
      : mean_(mean), rstd_(rstd), along_(means[0]) {
    if constexpr (kNorm == Norm::layer) {
      level_ = means[1];
    } else {
      along_ = rstd * (rstd * along_) * rstd;  // rstd³ by itself leaves f32 for rows of 1e13
    }
  }
  __device__ __forceinline__ float operator()(float m, float x) const {
    if constexpr (kNorm == Norm::layer) return rstd_ * fmaf(-along_, (x - mean_) * rstd_, m - level_);
    return fmaf(m, rstd_, -along_ * x);
  }

 private:
  float mean_, rstd_, along_, level_ = 0.0f;
};

}  // namespace tigon::cuda
