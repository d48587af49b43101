#include "tigon/ops/device_memory.hpp"

#include <memory>

#include "ops/route.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

const DeviceServices& services(Device device) {
  if (device.kind == DeviceKind::cpu) {
    throw Error(ErrorCode::unsupported, {.where = "device memory",
                                         .what = "a CPU has no device memory",
                                         .expected = "cuda or cuda:N",
                                         .got = to_string(device)});
  }
  if (device.assumed()) ops::throw_assumed("device memory");
  return *ops::backend_for(device, DType::f32).services;
}

}  // namespace

DeviceMemory::DeviceMemory(Device device, int64_t bytes) : device_(device), bytes_(bytes) {
  if (bytes < 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "DeviceMemory", .what = "a negative number of bytes was asked for"});
  }
  if (bytes > 0) data_ = static_cast<std::byte*>(services(device).allocate(device, bytes));
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) services(device_).release(device_, data_);
}

Pinned::Pinned(Device device, void* data, int64_t bytes) : device_(device), data_(bytes > 0 ? data : nullptr) {
  if (data_ != nullptr) services(device).pin(device, data, bytes);
}

Pinned::~Pinned() {
  if (data_ != nullptr) services(device_).unpin(device_, data_);
}

std::string assumed_gpu_name() { return ops::backend_for(assumed_gpu(), DType::f32).services->assumed_name; }

int64_t device_bytes_in_use(Device device) { return services(device).bytes_in_use(device); }

Allocation DeviceArena::take(std::string_view, int64_t bytes, MemoryClass) {
  return {services(device_).allocate(device_, bytes), bytes, -1};
}

void DeviceArena::give_back(const Allocation& allocation) noexcept {
  services(device_).release(device_, allocation.data);
}

void device_copy(const Context& ctx, void* to, const void* from, int64_t bytes) {
  if (bytes > 0) services(ctx.device).copy(ctx, to, from, bytes);
}

void device_fill(const Context& ctx, void* data, uint8_t value, int64_t bytes) {
  if (bytes > 0) services(ctx.device).fill(ctx, data, value, bytes);
}

void synchronize(const Context& ctx) { services(ctx.device).synchronize(ctx); }

void host_task(const Context& ctx, std::function<void()> task) {
  auto owned = std::make_unique<std::function<void()>>(std::move(task));
  const auto run = [](void* argument) {
    const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(argument));
    (*mine)();
  };
  services(ctx.device).host_task(ctx, run, owned.get());
  (void)owned.release();  // the task frees itself
}

DeviceStream::DeviceStream(Device device, bool urgent)
    : device_(device), stream_(services(device).create_stream(device, urgent)) {}

DeviceStream::~DeviceStream() { services(device_).destroy_stream(device_, stream_); }

DeviceEvent::DeviceEvent(Device device, bool timed)
    : device_(device), event_(services(device).create_event(device, timed)) {}

DeviceEvent::~DeviceEvent() {
  if (event_ != nullptr) services(device_).destroy_event(device_, event_);
}

void DeviceEvent::record(const Context& ctx) { services(device_).record_event(ctx, event_); }

void DeviceEvent::wait(const Context& ctx) const { services(device_).wait_event(ctx, event_); }

void DeviceEvent::synchronize() const { services(device_).synchronize_event(device_, event_); }

double DeviceEvent::ms_until(const DeviceEvent& later) const {
  return services(device_).event_ms(device_, event_, later.event_);
}

DeviceGraph::DeviceGraph(const Context& ctx, const std::function<void()>& body) : device_(ctx.device), graph_(nullptr) {
  const DeviceServices& device = services(ctx.device);
  device.begin_capture(ctx);
  try {
    body();
  } catch (...) {
    // The stream must not stay in capture mode; what went wrong in the body is what the caller needs to hear.
    try {
      device.destroy_graph(device_, device.end_capture(ctx));
    } catch (const Error&) {  // NOLINT: a broken capture cannot be ended well
    }
    throw;
  }
  graph_ = device.end_capture(ctx);
}

DeviceGraph::~DeviceGraph() { services(device_).destroy_graph(device_, graph_); }

void DeviceGraph::launch(const Context& ctx) const { services(device_).launch_graph(ctx, graph_); }

}  // namespace tigon
