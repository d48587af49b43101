#pragma once

#include "backend/cuda/row_share.hpp"
#include "backend/cuda/vec.cuh"

// The first and the last vector of a row that begins at any element. Some of their elements may be a neighbouring row's
// or nobody's: those are never written, and never read where they lie outside of the tensor.
namespace tigon::cuda {

// How many elements lie between a multiple of 16 bytes and this one.
template <class T>
__device__ __forceinline__ int lead_of(const T* row) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
}

// Whether all of columns [j, j + W) are among [begin, end).
template <int W>
__device__ __forceinline__ bool is_whole(int j, int begin, int end) {
  return j >= begin && j + W <= end;
}

// Columns [j, j + W), element by element; `fill` for those outside of [begin, end).
template <int W, class T>
__device__ __forceinline__ Raw<T, W> load_some(const T* row, int j, int begin, int end, float fill) {
  const float filled[1] = {fill};
  const Raw<T, 1> none = pack<T, 1>(filled);
  Raw<T, W> raw;
  auto* elements = reinterpret_cast<Raw<T, 1>*>(&raw);
#pragma unroll
  for (int k = 0; k < W; ++k) elements[k] = j + k >= begin && j + k < end ? load_raw<1>(row + j + k) : none;
  return raw;
}

// The same at once where they are all inside.
template <int W, class T>
__device__ __forceinline__ Raw<T, W> load_within(const T* row, int j, int begin, int end, float fill) {
  return is_whole<W>(j, begin, end) ? load_raw<W>(row + j) : load_some<W>(row, j, begin, end, fill);
}
template <int W, class T>
__device__ __forceinline__ void store_within(T* row, int j, int begin, int end, const float (&v)[W]) {
  if (is_whole<W>(j, begin, end)) return store<W>(row + j, v);
#pragma unroll
  for (int k = 0; k < W; ++k) {
    if (j + k >= begin && j + k < end) store_one(row + j + k, v[k]);
  }
}

// Of the vectors of a row's share those that may be copied whole: [begin, end).
template <class T>
struct CopiedVectors {
  const T* from;  // where vector 0 is
  int begin, end;

  __device__ __forceinline__ uint32_t bytes() const {
    return begin < end ? static_cast<uint32_t>(end - begin) * 16 : 0;
  }
};

// The memory of a tensor of rows.
template <class T>
class Bounds {
  static constexpr int W = kLanes<T>;

 public:
  __device__ __forceinline__ Bounds(const Rows<const T>& rows, int64_t count, int64_t columns)
      : begin_(rows.data), end_(rows.at(count - 1) + columns) {}

  __device__ __forceinline__ bool hold(const T* vector) const { return vector >= begin_ && vector + W <= end_; }
  // Only the first and the last can reach outside.
  __device__ __forceinline__ CopiedVectors<T> copied(const T* from, int vectors) const {
    return {from, hold(from) ? 0 : 1, hold(from + (vectors - 1) * W) ? vectors : vectors - 1};
  }
  // Corrects columns [j, j + W) of `row` in shared memory, after such a copy: `fill` where they are outside of
  // [begin, end), and from the row itself what was not copied.
  __device__ __forceinline__ void mend(T* copy, const T* row, int j, int begin, int end, float fill) const {
    const bool copied = hold(row + j);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      if (j + k < begin || j + k >= end) {
        store_one(copy + k, fill);
      } else if (!copied) {
        store_raw<1>(copy + k, load_raw<1>(row + j + k));
      }
    }
  }

 private:
  const T* begin_;
  const T* end_;
};

}  // namespace tigon::cuda
