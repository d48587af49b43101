#include "train/residency/lane.hpp"

#include <cstring>
#include <vector>

namespace tigon {

Lane::~Lane() {
  if (!stream_) return;
  try {
    synchronize({.device = device_, .stream = stream_->get()});
  } catch (const std::exception&) {  // NOLINT: a device that fails here has failed before
  }
}

Moment Lane::copy(const Context& compute, std::span<const Copy> copies, const Moment& after) {
  if (compute.measuring()) return {};
  if (device_.kind == DeviceKind::cpu) {
    // A CPU has computed all that it was asked for.
    if (!worker_) worker_.emplace();
    return worker_->add([after, list = std::vector<Copy>(copies.begin(), copies.end())] {
      after.wait();
      for (const Copy& c : list) std::memcpy(c.to.data, c.from.data, static_cast<size_t>(c.to.bytes()));
    });
  }
  if (!stream_) stream_.emplace(device_);
  const Context lane{.device = device_, .stream = stream_->get()};
  DeviceEvent computed(device_, false);
  computed.record(compute);
  computed.wait(lane);
  after.hold(lane);
  for (const Copy& c : copies) device_copy(lane, c.to.data, c.from.data, c.to.bytes());
  auto done = std::make_shared<DeviceEvent>(device_, false);
  done->record(lane);
  return Moment(std::shared_ptr<const DeviceEvent>(std::move(done)));
}

}  // namespace tigon
