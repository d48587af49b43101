#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "tigon/core/context.hpp"
#include "tigon/core/error.hpp"

// What every launch needs on the host's side: errors, the current device, the device's numbers.
namespace tigon::cuda {

// Throws Error when a call of the CUDA runtime failed.
inline void check(cudaError_t status, const char* where) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // an error that can be recovered from must not be found again by the next call
  const bool memory = status == cudaErrorMemoryAllocation;
  throw Error(memory ? ErrorCode::out_of_memory : ErrorCode::internal,
              {.where = where, .what = std::string("CUDA says: ") + cudaGetErrorString(status)});
}

// After a launch: finds a bad configuration now. What goes wrong inside the kernel appears at the next synchronize.
inline void check_launch(const char* where) { check(cudaGetLastError(), where); }

// Makes a device current, and the one before again when it leaves scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(const Context& ctx) : DeviceGuard(ctx.device) {}
  explicit DeviceGuard(Device device) {
    if (device.assumed()) return;
    check(cudaGetDevice(&before_), "device cuda");
    if (before_ == device.index) return;
    check(cudaSetDevice(device.index), "device cuda");
    changed_ = true;
  }
  ~DeviceGuard() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

inline cudaStream_t stream_of(const Context& ctx) { return static_cast<cudaStream_t>(ctx.stream); }

inline int attribute(Device device, cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device.index), "device cuda");
  return value;
}

// What launches ask of a device again and again, asked once.
struct DeviceNumbers {
  int multiprocessors = 0;
  int shared_bytes = 0;  // the most that one block can ask for
  int capability = 0;    // 90 for 9.0
  int code = 0;          // what our kernels were compiled for: less where an older chip's PTX runs on a newer one
};

// DeviceNumbers::code of the current device.
int compiled_capability();

// The GPU that plans are made for where there is none.
inline constexpr const char* kAssumedName = "H200";
inline constexpr DeviceNumbers kAssumedNumbers = {
    .multiprocessors = 132, .shared_bytes = 227 << 10, .capability = 90, .code = 90};

inline const DeviceNumbers& device_numbers(Device device) {
  if (device.assumed()) return kAssumedNumbers;
  constexpr int kKept = 64;
  static std::once_flag asked[kKept];
  static DeviceNumbers kept[kKept];
  const int slot = device.index;
  if (slot < 0 || slot >= kKept) {
    throw Error(ErrorCode::unsupported, {.where = "device cuda", .what = "there are more GPUs than Tigon counts"});
  }
  std::call_once(asked[slot], [&] {
    const DeviceGuard guard(device);
    kept[slot] = {attribute(device, cudaDevAttrMultiProcessorCount),
                  attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin),
                  10 * attribute(device, cudaDevAttrComputeCapabilityMajor) +
                      attribute(device, cudaDevAttrComputeCapabilityMinor),
                  compiled_capability()};
  });
  return kept[slot];
}

// Lets a kernel take as much shared memory as the device has, once per kernel and device. `Kernel` is the function
// itself.
template <auto Kernel>
void allow_shared(Device device, const char* where) {
  static std::atomic<uint64_t> allowed{0};
  const uint64_t bit = uint64_t{1} << device.index;
  const int bytes = device_numbers(device).shared_bytes;
  if (allowed.load(std::memory_order_acquire) & bit) return;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, Kernel), where);
  const int dynamic = bytes - static_cast<int>(attributes.sharedSizeBytes);
  check(cudaFuncSetAttribute(Kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic), where);
  allowed.fetch_or(bit, std::memory_order_release);
}

// A launch that may begin while the kernel before it in the stream is ending: its blocks are set up early and wait in
// wait_for_previous(), which they must call before they touch what it writes and before they end, and read nothing past
// the coherent caches (__restrict__). It takes the kernel before it to allow that, by let_next_begin(); any other is
// waited for as always. An ordinary launch before sm_90, or where `after_kernel` is false: for kernels that read before
// they wait, unless the one before is known.
template <class... Parameters, class... Arguments>
void launch_early(Device device, bool after_kernel, cudaStream_t stream, dim3 grid, dim3 block, size_t shared,
                  void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = after_kernel && device_numbers(device).code >= 90 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "launch");
}
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
// In the kernel before: from here on the next one may be set up. What it waits for is still the end of this one.
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t to) { return divide_up(a, to) * to; }

// A number of blocks as a grid; kernels loop, so that more work than a grid can have blocks is still done.
inline unsigned grid_size(int64_t blocks) { return static_cast<unsigned>(std::min<int64_t>(blocks, INT32_MAX)); }

}  // namespace tigon::cuda
