#pragma once

#include <cuda_pipeline.h>

#include "backend/cuda/barrier.cuh"
#include "backend/cuda/group.cuh"
#include "backend/cuda/row_edge.cuh"

// The next rows of a group, on their way into shared memory while it works on this one.
//
// Two ways to carry a row. In 16-byte pieces (cp.async): each thread asks for what it will read itself, so nothing but
// its own copies needs waiting for, and it may ask again as soon as it has read. In bulk (sm_90): one thread asks for
// whole rows and all wait on the barrier in shared memory that counts the bytes; asking again needs every thread of the
// group to be done with the slot.
//
// Where rows begin at any element (kShifted), a slot holds the vectors around a row; what of them is not the row's, and
// vectors that reach outside of the tensor, is for the reader to mend (Bounds).
namespace tigon::cuda {

template <class T, int kTensors, int kStages, bool kBulk, bool kShifted = false>
class RowRing {
 public:
  static constexpr int W = kLanes<T>;

  // The bytes of one group, for slots of so many elements.
  __host__ __device__ static constexpr size_t bytes(size_t hidden) { return kStages * kTensors * hidden * sizeof(T); }

  // `slots` is this group's memory and `arrived` its kStages barriers. The block must synchronize before the first
  // fetch.
  __device__ __forceinline__ RowRing(const Group<true>& group, unsigned char* slots, uint64_t* arrived, unsigned hidden)
      : group_(group), slots_(reinterpret_cast<T*>(slots)), arrived_(arrived), hidden_(hidden) {
    if constexpr (kBulk) {
      if (group.thread() == 0) {
        for (int s = 0; s < kStages; ++s) init_barrier(arrived + s);
        fence_barriers();
      }
    }
  }

  // Asks for one row of each tensor: row_of(t) says where it is, or what to copy of it where rows are shifted.
  // `present` false: there is no such row, but the call counts.
  template <class Source>
  __device__ __forceinline__ void fetch(int stage, bool present, const Source& row_of) {
    if constexpr (kShifted) {
      fetch_vectors(stage, present, row_of);
    } else if constexpr (kBulk) {
      if (group_.thread() != 0 || !present) return;
      const uint32_t bytes = hidden_ * static_cast<uint32_t>(sizeof(T));
      expect_bytes(arrived_ + stage, kTensors * bytes);
#pragma unroll
      for (int t = 0; t < kTensors; ++t) copy_bulk(slot(stage, t), row_of(t), bytes, arrived_ + stage);
    } else {
      if (present) {
#pragma unroll
        for (int t = 0; t < kTensors; ++t) {
          const T* row = row_of(t);
          for (unsigned column = group_.thread() * W; column < hidden_; column += group_.threads() * W) {
            __pipeline_memcpy_async(slot(stage, t) + column, row + column, 16);
          }
        }
      }
      __pipeline_commit();
    }
  }

  // Until the row in this stage is there. Stages come in turn, and so do the phases of their barriers.
  __device__ __forceinline__ void wait(int stage, unsigned phase) const {
    if constexpr (kBulk) {
      wait_barrier(arrived_ + stage, phase);
    } else {
      __pipeline_wait_prior(kStages - 1);
    }
  }

  __device__ __forceinline__ T* slot(int stage, int tensor) const {
    return slots_ + (stage * kTensors + tensor) * hidden_;
  }

 private:
  template <class Source>
  __device__ __forceinline__ void fetch_vectors(int stage, bool present, const Source& vectors_of) {
    if constexpr (kBulk) {
      if (group_.thread() != 0 || !present) return;
      uint32_t bytes = 0;
#pragma unroll
      for (int t = 0; t < kTensors; ++t) bytes += vectors_of(t).bytes();
      expect_bytes(arrived_ + stage, bytes);
#pragma unroll
      for (int t = 0; t < kTensors; ++t) {
        const CopiedVectors<T> copied = vectors_of(t);
        if (copied.bytes() == 0) continue;
        copy_bulk(slot(stage, t) + copied.begin * W, copied.from + copied.begin * W, copied.bytes(), arrived_ + stage);
      }
    } else {
      if (present) {
#pragma unroll
        for (int t = 0; t < kTensors; ++t) {
          const CopiedVectors<T> copied = vectors_of(t);
          const int threads = static_cast<int>(group_.threads());
          for (int v = static_cast<int>(group_.thread()); v < copied.end; v += threads) {
            if (v >= copied.begin) __pipeline_memcpy_async(slot(stage, t) + v * W, copied.from + v * W, 16);
          }
        }
      }
      __pipeline_commit();
    }
  }

  const Group<true>& group_;
  T* slots_;
  uint64_t* arrived_;
  unsigned hidden_;
};

}  // namespace tigon::cuda
