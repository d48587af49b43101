#pragma once

#include "backend/cuda/vec.cuh"

// A block cut into groups of whole warps that work on rows of their own and wait only for themselves: while one group
// stands at its barrier, the others keep the multiprocessor busy.
namespace tigon::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kMaxWarps = 32;
// Barriers have numbers up to 15, and 0 is __syncthreads. Groups of one warp need none.
inline constexpr int kMaxGroups = 15;

struct GroupParts {
  float of[2][2][kMaxWarps];
};

// kSeveral: up to kMaxGroups in a block. Else a group is the whole block or a single warp: numbered barriers are scarce
// where many blocks share a multiprocessor.
template <bool kSeveral>
class Group {
 public:
  // `parts` is shared by the whole block.
  __device__ __forceinline__ Group(unsigned threads, GroupParts& parts)
      : parts_(parts), threads_(threads), index_(threadIdx.x / threads), thread_(threadIdx.x - index_ * threads) {}

  __device__ __forceinline__ unsigned index() const { return index_; }
  __device__ __forceinline__ unsigned thread() const { return thread_; }
  __device__ __forceinline__ unsigned threads() const { return threads_; }

  __device__ __forceinline__ void barrier() const {
    if (threads_ == kWarp) {
      __syncwarp();
    } else if constexpr (!kSeveral) {
      __syncthreads();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(index_ + 1), "r"(threads_) : "memory");
    }
  }

  // Sums over the group, in an order that the number of threads fixes; each thread gets them. One barrier for all N;
  // two buffers, used in turn, so that a thread that is still reading is never overtaken.
  template <int N>
  __device__ __forceinline__ void sum(float (&values)[N]) {
    static_assert(N <= 2);
    const unsigned lane = threadIdx.x % kWarp, warps = threads_ / kWarp, first = index_ * warps;
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = warp_reduce(values[k], Sum());
    if (warps == 1) return __syncwarp();
    auto& parts = parts_.of[turn_];
    turn_ ^= 1;
    if (lane == 0) {
#pragma unroll
      for (int k = 0; k < N; ++k) parts[k][threadIdx.x / kWarp] = values[k];
    }
    barrier();
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = warp_reduce(lane < warps ? parts[k][first + lane] : 0.0f, Sum());
  }
  __device__ __forceinline__ float sum(float value) {
    float values[1] = {value};
    sum(values);
    return values[0];
  }

 private:
  GroupParts& parts_;
  unsigned threads_, index_, thread_;
  int turn_ = 0;
};

}  // namespace tigon::cuda
