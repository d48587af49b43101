#pragma once

#include "backend/cuda/barrier.cuh"

namespace tigon::cuda {

// How those who fill buffers and those who read them agree on what is filled and what may be filled again.
template <int kBuffers>
struct Buffers {
  uint64_t full[kBuffers], empty[kBuffers];

  __device__ __forceinline__ void init(int writers, int readers) {
    for (int i = 0; i < kBuffers; ++i) {
      init_barrier(full + i, writers);
      init_barrier(empty + i, readers);
    }
  }
  // `use` counts what went through the buffers so far.
  __device__ __forceinline__ uint64_t* to_fill(int use) {
    wait_barrier(empty + use % kBuffers, (use / kBuffers & 1) ^ 1);
    return full + use % kBuffers;
  }
  __device__ __forceinline__ void wait_full(int use) { wait_barrier(full + use % kBuffers, use / kBuffers & 1); }
  // By a thread that reads or writes; by warps, through their first lane.
  __device__ __forceinline__ void filled(int use) { arrive(full + use % kBuffers); }
  __device__ __forceinline__ void release(int use) { arrive(empty + use % kBuffers); }
  __device__ __forceinline__ void release_by_warp(int use) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) release(use);
  }
  __device__ __forceinline__ void filled_by_warp(int use) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) filled(use);
  }
};

}  // namespace tigon::cuda
