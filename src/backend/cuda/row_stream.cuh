#pragma once

#include <cstdint>

// Rows that arrive in shared memory ahead of their use, on sm_90: one thread asks the copy engine for a block's segment
// of a row, two rows ahead, so that memory never waits for arithmetic or for the team's barrier.
namespace tigon::cuda {

inline constexpr int kStreamSlots = 2;

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

class RowStream {
 public:
  struct Shared {
    uint64_t arrived[kStreamSlots];  // barriers of the hardware
  };

  // `slots`: dynamic shared memory, kStreamSlots segments of `segment_bytes`, 128-byte aligned.
  __device__ __forceinline__ RowStream(Shared& shared, uint4* slots, uint32_t segment_bytes)
      : shared_(shared), slots_(slots), segment_bytes_(segment_bytes) {
    if (threadIdx.x != 0) return;
    for (uint64_t& barrier : shared_.arrived) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)) : "memory");
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  }

  __device__ __forceinline__ const uint4* slot(int which) const {
    return slots_ + static_cast<int64_t>(which) * (segment_bytes_ / 16);
  }

  // By one thread, when everyone has read what the slot held. `from` and `bytes` are multiples of 16.
  __device__ __forceinline__ void ask(int which, const void* from, uint32_t bytes) const {
#if __CUDA_ARCH__ >= 900
    const uint32_t barrier = shared_address(&shared_.arrived[which]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(slot(which))),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
#endif
  }

  // By every thread: the segment last asked for is there.
  __device__ __forceinline__ void wait(int which) {
#if __CUDA_ARCH__ >= 900
    const uint32_t barrier = shared_address(&shared_.arrived[which]), parity = (phases_ >> which) & 1u;
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n"
          "}\n"
          : "=r"(done)
          : "r"(barrier), "r"(parity)
          : "memory");
    }
    phases_ ^= 1u << which;
#endif
  }

 private:
  Shared& shared_;
  uint4* slots_;
  uint32_t segment_bytes_;
  uint32_t phases_ = 0;  // of each slot
};

}  // namespace tigon::cuda
