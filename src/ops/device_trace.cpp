#include "tigon/ops/device_trace.hpp"

#include "ops/route.hpp"

namespace tigon {

namespace {

const DeviceServices& services(Device device) { return *ops::backend_for(device, DType::f32).services; }

}  // namespace

DeviceDescription describe_device(Device device) {
  DeviceDescription description;
  services(device).describe(device, description);
  return description;
}

DeviceTrace::DeviceTrace(Device device) : device_(device), fault_(services(device).start_trace()) {
  watching_ = fault_.empty();
}

DeviceTrace::~DeviceTrace() {
  bool cut = false;
  try {
    (void)finish(cut);
  } catch (const std::exception&) {  // NOLINT: nobody wanted it
  }
}

void DeviceTrace::enter(int64_t scope) noexcept {
  if (watching_) services(device_).enter_trace(scope);
}

void DeviceTrace::leave() noexcept {
  if (watching_) services(device_).leave_trace();
}

std::vector<DeviceActivity> DeviceTrace::finish(bool& cut) {
  if (!std::exchange(watching_, false)) return {};
  return services(device_).finish_trace(cut);
}

void push_range(Device device, const char* name) { services(device).push_range(name); }
void pop_range(Device device) noexcept { services(device).pop_range(); }

}  // namespace tigon
