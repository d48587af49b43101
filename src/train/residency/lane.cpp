#include "train/residency/lane.hpp"

#include <vector>

#include "tigon/core/scope.hpp"
#include "train/device_block.hpp"

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
  const bool disk = concerns_disk(copies);
  if (compute.measuring()) {
    if (disk) disk_->book(copies);
    count(copies);
    return {};
  }
  return add(copies, Moment::all({Moment::of(compute), after}), beside(compute));
}

Moment Lane::copy(std::span<const Copy> copies, const Moment& after, Observer* watch) {
  return add(copies, after, watch);
}

bool Lane::concerns_disk(std::span<const Copy> copies) {
  return !copies.empty() && (on_disk(copies[0].from) || on_disk(copies[0].to));
}

void Lane::count(std::span<const Copy> copies) {
  for (const Copy& c : copies) bytes_.fetch_add(c.to.bytes(), std::memory_order_relaxed);
}

Moment Lane::add(std::span<const Copy> copies, const Moment& after, Observer* watch) {
  count(copies);
  const bool streams = device_.kind != DeviceKind::cpu;
  if (!worker_) worker_.emplace();
  if (streams && !stream_) stream_.emplace(device_);
  auto done = streams ? std::make_shared<DeviceEvent>(device_, false) : nullptr;
  // The thread waits for `after`, and not the stream: a stream that waits for the host may hold up others.
  const Moment queued =
      worker_->add([this, after, list = std::vector<Copy>(copies.begin(), copies.end()), done, watch] {
        const Context lane{.device = device_, .stream = stream_ ? stream_->get() : nullptr, .observer = watch};
        after.hold(lane);
        const Scope scope(lane, name_);
        if (concerns_disk(list)) {
          disk_->copy(lane, list);
        } else {
          for (const Copy& c : list) queue_copy(lane, c.to, c.from);
        }
        if (done) done->record(lane);
      });
  Moment copied(queued, std::move(done));
  return concerns_disk(copies) ? std::move(copied).of_disk() : copied;
}

}  // namespace tigon
