#include "train/residency/lane.hpp"

#include <cstring>
#include <vector>

#include "tigon/core/scope.hpp"

namespace tigon {

Lane::~Lane() {
  worker_.reset();
  if (!stream_) return;
  try {
    synchronize({.device = device_, .stream = stream_->get()});
  } catch (const std::exception&) {  // NOLINT: a device that fails here has failed before
  }
}

Moment Lane::copy(const Context& compute, std::span<const Copy> copies, const Moment& after) {
  if (compute.measuring()) return {};
  if (!worker_) worker_.emplace();
  for (const Copy& c : copies) bytes_ += c.to.bytes();
  std::vector<Copy> list(copies.begin(), copies.end());
  if (device_.kind == DeviceKind::cpu) {  // which has computed all that it was asked for
    return worker_->add([after, list = std::move(list), name = name_, watch = beside(compute)] {
      after.wait();
      const Context host{.observer = watch};
      const Scope scope(host, name);
      for (const Copy& c : list) std::memcpy(c.to.data, c.from.data, static_cast<size_t>(c.to.bytes()));
    });
  }
  if (!stream_) stream_.emplace(device_);
  auto computed = std::make_shared<DeviceEvent>(device_, false), done = std::make_shared<DeviceEvent>(device_, false);
  computed->record(compute);
  // The thread waits for `after`, and not the stream: a stream that waits for the host may hold up others.
  const Moment queued = worker_->add([this, after, list = std::move(list), computed, done, watch = beside(compute)] {
    const Context lane{.device = device_, .stream = stream_->get(), .observer = watch};
    after.hold(lane);
    const Scope scope(lane, name_);
    computed->wait(lane);
    for (const Copy& c : list) device_copy(lane, c.to.data, c.from.data, c.to.bytes());
    done->record(lane);
  });
  return {queued, std::move(done)};
}

}  // namespace tigon
