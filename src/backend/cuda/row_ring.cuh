#pragma once

#include <cuda_pipeline.h>

#include "backend/cuda/group.cuh"

// The next rows of a group, on their way into shared memory while it works on this one.
//
// Two ways to carry a row. In 16-byte pieces (cp.async): each thread asks for what it will read itself, so nothing but
// its own copies needs waiting for, and it may ask again as soon as it has read. In bulk (sm_90): one thread asks for
// whole rows and all wait on the barrier in shared memory that counts the bytes; asking again needs every thread of the
// group to be done with the slot.
namespace tigon::cuda {

// The bulk copies and their barriers. Before sm_90 there are none, and no launch asks for them.
namespace bulk {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ __forceinline__ void init(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
}
__device__ __forceinline__ void init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void wait(const uint64_t* barrier, unsigned phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}
#else
__device__ inline void init(uint64_t*) {}
__device__ inline void init_done() {}
__device__ inline void expect(uint64_t*, uint32_t) {}
__device__ inline void copy(void*, const void*, uint32_t, uint64_t*) {}
__device__ inline void wait(const uint64_t*, unsigned) {}
#endif

}  // namespace bulk

template <class T, int kTensors, int kStages, bool kBulk>
class RowRing {
 public:
  static constexpr int W = kLanes<T>;

  // The bytes of one group.
  __host__ __device__ static constexpr size_t bytes(size_t hidden) { return kStages * kTensors * hidden * sizeof(T); }

  // `slots` is this group's memory and `arrived` its kStages barriers. The block must synchronize before the first
  // fetch.
  __device__ __forceinline__ RowRing(const Group<true>& group, unsigned char* slots, uint64_t* arrived, unsigned hidden)
      : group_(group), slots_(reinterpret_cast<T*>(slots)), arrived_(arrived), hidden_(hidden) {
    if constexpr (kBulk) {
      if (group.thread() == 0) {
        for (int s = 0; s < kStages; ++s) bulk::init(arrived + s);
        bulk::init_done();
      }
    }
  }

  // Asks for one row of each tensor. `present` false: there is no such row, but the call counts.
  template <class Pointer>
  __device__ __forceinline__ void fetch(int stage, bool present, const Pointer& row_of) {
    if constexpr (kBulk) {
      if (group_.thread() != 0 || !present) return;
      const uint32_t bytes = hidden_ * static_cast<uint32_t>(sizeof(T));
      bulk::expect(arrived_ + stage, kTensors * bytes);
#pragma unroll
      for (int t = 0; t < kTensors; ++t) bulk::copy(slot(stage, t), row_of(t), bytes, arrived_ + stage);
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
      bulk::wait(arrived_ + stage, phase);
    } else {
      __pipeline_wait_prior(kStages - 1);
    }
  }

  __device__ __forceinline__ T* slot(int stage, int tensor) const {
    return slots_ + (stage * kTensors + tensor) * hidden_;
  }

 private:
  const Group<true>& group_;
  T* slots_;
  uint64_t* arrived_;
  unsigned hidden_;
};

}  // namespace tigon::cuda
