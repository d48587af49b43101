#pragma once

#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

// What softmax and cross_entropy share: a row held by one block, and the maximum and Σ e^(x − maximum) of it in one
// read.
namespace tigon::cuda {

inline constexpr int kFewHeld = 4;
inline constexpr int kManyHeld = 16;
inline constexpr int kRowThreads = 512;

// How a row is cut: vectors of W elements, the first NV of each thread kept in registers, the rest read again (from
// L2).
template <class T, int W, int NV>
class HeldRow {
  static constexpr bool kWhole = W > 1 && NV == kFewHeld;  // as with_row_plan promises: nothing is left to read again

 public:
  __device__ __forceinline__ HeldRow(const T* row, int64_t columns)
      : row_(row), columns_(columns), step_(int64_t{blockDim.x} * W), first_(int64_t{threadIdx.x} * W) {
#pragma unroll
    for (int i = 0; i < NV; ++i) {
      if (first_ + i * step_ < columns_) held_[i] = load_raw<W>(row_ + first_ + i * step_);
    }
  }

  // f(column, values) for each vector of this thread, by rising column. f may overwrite the vector it was given.
  template <class F>
  __device__ __forceinline__ void for_each(F&& f) const {
#pragma unroll
    for (int i = 0; i < NV; ++i) {
      if (first_ + i * step_ < columns_) visit(first_ + i * step_, held_[i], f);
    }
    if constexpr (!kWhole) {
      for (int64_t j = first_ + NV * step_; j < columns_; j += 4 * step_) {
        Raw<T, W> raw[4];  // four loads in flight
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (j + i * step_ < columns_) raw[i] = load_raw<W>(row_ + j + i * step_);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (j + i * step_ < columns_) visit(j + i * step_, raw[i], f);
        }
      }
    }
  }

 private:
  template <class F>
  __device__ __forceinline__ static void visit(int64_t j, const Raw<T, W>& raw, F&& f) {
    float values[W];
    unpack<T, W>(raw, values);
    f(j, values);
  }

  const T* row_;
  int64_t columns_, step_, first_;
  Raw<T, W> held_[NV];
};

// e^x for x <= 0: within 2 ulp for f32; for 16-bit storage a few f32 ulp of the larger terms, at two instructions.
template <class T>
__device__ __forceinline__ float exp_for(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return __expf(x);
  }
}

__device__ __forceinline__ float lowest() { return __int_as_float(static_cast<int>(0xff800000u)); }  // −infinity

// The running maximum of some values and Σ e^(value − maximum). NaN and +infinity show in the sum.
struct MaxSum {
  float max = lowest();
  float sum = 0.0f;

  // What is subtracted before the exponent; without any finite value there is nothing to subtract.
  __device__ __forceinline__ float shift() const { return max == lowest() ? 0.0f : max; }

  // Whether the maximum moved.
  template <class T, int W>
  __device__ __forceinline__ bool add(const float (&values)[W]) {
    float top = values[0];
#pragma unroll
    for (int i = 1; i < W; ++i) top = fmaxf(top, values[i]);
    const bool moved = top > max;
    if (moved) {
      sum *= expf(max - top);
      max = top;
    }
    const float base = shift();
#pragma unroll
    for (int i = 0; i < W; ++i) sum += exp_for<T>(values[i] - base);
    return moved;
  }

  // The sum as if `largest` had been the maximum.
  __device__ __forceinline__ float sum_under(float largest) const {
    return max == largest ? sum : sum * expf(max - largest);
  }
};

// Over the block; `shared` has room for 32.
__device__ __forceinline__ MaxSum block_max_sum(const MaxSum& mine, float* shared) {
  MaxSum all;
  all.max = block_reduce(mine.max, lowest(), Max(), shared);
  all.sum = block_reduce(mine.sum_under(all.max), 0.0f, Sum(), shared);
  return all;
}

// How a row kernel is launched: vectors or single elements, few or many of them in registers.
struct RowPlan {
  unsigned blocks;
  unsigned threads;
};
inline RowPlan row_plan(int64_t rows, int64_t vectors, int held) {
  return {static_cast<unsigned>(std::min(rows, kMaxGridX)),
          static_cast<unsigned>(power_of_two_for(divide_up(vectors, held), 32, kRowThreads))};
}

// Calls f(std::integral_constant<W>, std::integral_constant<NV>, plan) for rows of T; long rows hold kMany vectors.
template <class T, int kMany, class F>
void with_row_plan(int64_t rows, int64_t columns, bool aligned, F&& f) {
  constexpr int W = kLanes<T>;
  if (!aligned || columns % W != 0) {
    return f(std::integral_constant<int, 1>(), std::integral_constant<int, kFewHeld>(),
             row_plan(rows, columns, kFewHeld));
  }
  const int64_t vectors = columns / W;
  if (vectors <= int64_t{kFewHeld} * kRowThreads) {
    return f(std::integral_constant<int, W>(), std::integral_constant<int, kFewHeld>(),
             row_plan(rows, vectors, kFewHeld));
  }
  f(std::integral_constant<int, W>(), std::integral_constant<int, kMany>(), row_plan(rows, vectors, kMany));
}

}  // namespace tigon::cuda
