#include "train/residency/lane.hpp"

#include <cstring>
#include <vector>

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
  const bool disk = !copies.empty() && (on_disk(copies[0].from) || on_disk(copies[0].to));
  if (compute.measuring()) {
    if (disk) disk_->book(copies);
    return {};
  }
  if (!worker_) worker_.emplace();
  for (const Copy& c : copies) bytes_ += c.to.bytes();
  std::vector<Copy> list(copies.begin(), copies.end());
  if (device_.kind == DeviceKind::cpu) {  // which has computed all that it was asked for
    return worker_->add([this, disk, after, list = std::move(list)] {
      after.wait();
      if (disk) return disk_->copy({}, list);
      for (const Copy& c : list) std::memcpy(c.to.data, c.from.data, static_cast<size_t>(c.to.bytes()));
    });
  }
  if (!stream_) stream_.emplace(device_);
  auto computed = std::make_shared<DeviceEvent>(device_, false), done = std::make_shared<DeviceEvent>(device_, false);
  computed->record(compute);
  // The thread waits for `after`, and not the stream: a stream that waits for the host may hold up others.
  const Moment queued = worker_->add([this, disk, after, list = std::move(list), computed, done] {
    const Context lane{.device = device_, .stream = stream_->get()};
    after.hold(lane);
    computed->wait(lane);
    if (disk) disk_->copy(lane, list);
    for (const Copy& c : list) {
      if (!disk) device_copy(lane, c.to.data, c.from.data, c.to.bytes());
    }
    done->record(lane);
  });
  return {queued, std::move(done)};
}

}  // namespace tigon
