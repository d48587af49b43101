#pragma once

#include <optional>

#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"

namespace tigon {

// Memory on whatever device a run uses, taken once.
class DeviceBlock {
 public:
  DeviceBlock(Device device, int64_t bytes);
  std::byte* data() const noexcept { return host_ ? host_->data() : device_->data(); }
  bool on_host() const noexcept { return host_.has_value(); }

 private:
  std::optional<HostMemory> host_;
  std::optional<DeviceMemory> device_;
};

// Copies that are done when they return. `ctx.stream` carries them on a GPU.
void copy_to(const Context& ctx, const Tensor& to, const void* from);
void copy_from(const Context& ctx, void* to, const Tensor& from);
// Some bytes of a contiguous tensor.
void copy_bytes_to(const Context& ctx, const Tensor& to, int64_t offset, const void* from, int64_t bytes);
void copy_bytes_from(const Context& ctx, void* to, const Tensor& from, int64_t offset, int64_t bytes);
// A copy within the device, or between it and the host, queued on ctx.stream where there are streams.
void queue_copy(const Context& ctx, const Tensor& to, const Tensor& from);
void fill_zero(const Context& ctx, const Tensor& t);

}  // namespace tigon
