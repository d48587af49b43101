#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "tigon/core/context.hpp"

// A GPU's memory, streams, events and graphs, for whoever drives ops on one: no CUDA header is needed. On a machine
// without a usable GPU everything here throws Error (unsupported) that says why; so does a CPU device.
namespace tigon {

// Memory of a device, taken once and returned once. At least 256-byte aligned; its contents start undefined.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device device, int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;

  std::byte* data() const noexcept { return data_; }
  int64_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }

 private:
  Device device_{};
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// What of the device's memory anybody holds: this process, its libraries and contexts, other processes.
int64_t device_bytes_in_use(Device device);

// Which GPU assumed_gpu() stands for, "H200". Needs the CUDA backend and no GPU.
std::string assumed_gpu_name();

// Each block from the device's allocator, which waits for the device: for inputs and one-off calls, not for steps.
class DeviceArena final : public MemorySource {
 public:
  explicit DeviceArena(Device device) : device_(device) {}
  Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) override;
  void give_back(const Allocation& allocation) noexcept override;

 private:
  Device device_;
};

// A copy between any two memories, queued on ctx.stream. Host memory that it reads or writes must stay until the next
// synchronize.
void device_copy(const Context& ctx, void* to, const void* from, int64_t bytes);
// Every byte set to `value`, queued on ctx.stream.
void device_fill(const Context& ctx, void* data, uint8_t value, int64_t bytes);
// Waits until everything queued on ctx.stream is done.
void synchronize(const Context& ctx);

// A queue of its own, for Context::stream.
class DeviceStream {
 public:
  explicit DeviceStream(Device device);
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  void* get() const noexcept { return stream_; }

 private:
  Device device_;
  void* stream_;
};

// A moment in a stream.
class DeviceEvent {
 public:
  explicit DeviceEvent(Device device);
  ~DeviceEvent();
  DeviceEvent(DeviceEvent&& other) noexcept : device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&&) = delete;

  void record(const Context& ctx);
  // Milliseconds from this moment to a later one, which it waits for.
  double ms_until(const DeviceEvent& later) const;

 private:
  Device device_;
  void* event_;
};

// A sequence of ops recorded once and launched as one piece. `body` must queue everything on ctx.stream, which must be
// a DeviceStream, and must neither wait nor allocate.
class DeviceGraph {
 public:
  DeviceGraph(const Context& ctx, const std::function<void()>& body);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  void launch(const Context& ctx) const;

 private:
  Device device_;
  void* graph_;
};

}  // namespace tigon
