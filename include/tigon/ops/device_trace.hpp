#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tigon/core/device.hpp"

// What a GPU ran and when, by CUPTI, which comes with NVIDIA's toolkit and is opened at run time; and NVTX ranges.
namespace tigon {

// A kernel, copy or fill on a GPU, or the host's call that asked for it. Times are nanoseconds of
// std::chrono::steady_clock.
struct DeviceActivity {
  enum class Kind : uint8_t { kernel, copy, fill, call };
  Kind kind = Kind::kernel;
  std::string name;
  int64_t begin = 0, end = 0;
  int64_t correlation = 0;  // the same for a call and what it asked for
  int64_t scope = -1;       // what enter() was given last by the thread that asked for it; negative: nothing
  int device = 0;
  int64_t stream = 0;
  int64_t bytes = 0;  // of copies and fills
  std::array<int32_t, 3> grid{}, block{};
  int32_t registers = 0;      // a thread's
  int64_t shared_memory = 0;  // a block's
};

// What a GPU is, as profilers show it.
struct DeviceDescription {
  std::string name;
  int64_t memory = 0;
  int32_t major = 0, minor = 0, multiprocessors = 0, warp_size = 0, threads_per_block = 0,
          threads_per_multiprocessor = 0, registers_per_multiprocessor = 0;
  int64_t shared_memory_per_block = 0, shared_memory_per_multiprocessor = 0;
};
DeviceDescription describe_device(Device device);

// Watches all that this process runs on GPUs, from its beginning to finish(). One at a time.
class DeviceTrace {
 public:
  explicit DeviceTrace(Device device);
  ~DeviceTrace();
  DeviceTrace(const DeviceTrace&) = delete;
  DeviceTrace& operator=(const DeviceTrace&) = delete;

  // Why it sees nothing; empty where it sees.
  const std::string& fault() const noexcept { return fault_; }
  // What this thread asks for from now on, until leave(), belongs to `scope`. They nest.
  void enter(int64_t scope) noexcept;
  void leave() noexcept;
  // All that is done by now: whoever wants all of it waits for the device first. At most so many; `cut` says whether
  // there were more.
  std::vector<DeviceActivity> finish(bool& cut);

 private:
  Device device_;
  std::string fault_;
  bool watching_ = false;
};

// A named range of this thread in NVIDIA's tools (Nsight Systems); they nest.
void push_range(Device device, const char* name);
void pop_range(Device device) noexcept;

}  // namespace tigon
