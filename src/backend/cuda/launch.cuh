#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
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

// Number of multiprocessors.
inline int multiprocessors(Device device) { return attribute(device, cudaDevAttrMultiProcessorCount); }
// The most shared memory that one block can ask for.
inline int shared_bytes_limit(Device device) { return attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin); }

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t to) { return divide_up(a, to) * to; }

// A number of blocks as a grid; kernels loop, so that more work than a grid can have blocks is still done.
inline unsigned grid_size(int64_t blocks) { return static_cast<unsigned>(std::min<int64_t>(blocks, INT32_MAX)); }

}  // namespace tigon::cuda
