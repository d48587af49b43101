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

// Pins host memory that somebody else owns, such as HostMemory, for as long as it lives: copies to and from the device
// run at full speed there, while the host goes on. A system that cannot pin so much is an Error (out_of_memory).
class Pinned {
 public:
  Pinned(Device device, void* data, int64_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  Device device_;
  void* data_;
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
// Runs `task` on a thread of the host when everything queued on ctx.stream before it is done; what is queued after it
// waits for it. It must not throw, and must not use the device.
void host_task(const Context& ctx, std::function<void()> task);

// A queue of its own, for Context::stream.
class DeviceStream {
 public:
  // Kernels of an urgent one begin before those of others that wait for a place.
  explicit DeviceStream(Device device, bool urgent = false);
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  void* get() const noexcept { return stream_; }

 private:
  Device device_;
  void* stream_;
};

// A moment in a stream. One that is not timed costs less, and the host sleeps while it waits for it.
class DeviceEvent {
 public:
  explicit DeviceEvent(Device device, bool timed = true);
  ~DeviceEvent();
  DeviceEvent(DeviceEvent&& other) noexcept : device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&&) = delete;

  void record(const Context& ctx);
  // What is queued on ctx.stream from now on waits for this moment.
  void wait(const Context& ctx) const;
  // The host waits for it.
  void synchronize() const;
  // Milliseconds from this moment to a later one, which it waits for. Both must be timed.
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
