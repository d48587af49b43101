#include "train/device_block.hpp"

#include <cstring>

namespace tigon {

DeviceBlock::DeviceBlock(Device device, int64_t bytes) {
  if (device.kind == DeviceKind::cpu) {
    host_.emplace(bytes);
  } else {
    device_.emplace(device, bytes);
  }
}

// What stays on the host is written there, whatever the device is.
static bool on_host(const Tensor& t) { return t.device.kind == DeviceKind::cpu; }

void copy_bytes_to(const Context& ctx, const Tensor& to, int64_t offset, const void* from, int64_t bytes) {
  void* target = to.as<std::byte>() + offset;
  if (on_host(to)) {
    std::memcpy(target, from, static_cast<size_t>(bytes));
    return;
  }
  device_copy(ctx, target, from, bytes);
  synchronize(ctx);
}

void copy_bytes_from(const Context& ctx, void* to, const Tensor& from, int64_t offset, int64_t bytes) {
  const void* source = from.as<std::byte>() + offset;
  if (on_host(from)) {
    std::memcpy(to, source, static_cast<size_t>(bytes));
    return;
  }
  device_copy(ctx, to, source, bytes);
  synchronize(ctx);
}

void copy_to(const Context& ctx, const Tensor& to, const void* from) { copy_bytes_to(ctx, to, 0, from, to.bytes()); }
void copy_from(const Context& ctx, void* to, const Tensor& from) { copy_bytes_from(ctx, to, from, 0, from.bytes()); }

void queue_copy(const Context& ctx, const Tensor& to, const Tensor& from) {
  if (ctx.device.kind == DeviceKind::cpu) {
    std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes()));
  } else {
    device_copy(ctx, to.data, from.data, to.bytes());
  }
}

void fill_zero(const Context& ctx, const Tensor& t) {
  if (on_host(t)) {
    std::memset(t.data, 0, static_cast<size_t>(t.bytes()));
  } else {
    device_fill(ctx, t.data, 0, t.bytes());
    synchronize(ctx);
  }
}

}  // namespace tigon
