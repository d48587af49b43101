#pragma once

#include <atomic>

#include "train/residency/disk_update.hpp"
#include "train/residency/lane.hpp"
#include "train/residency/update_job.hpp"

namespace tigon {

// Updates by the host's cores over states and gradients that are there, on a thread of its own.
class HostUpdate {
 public:
  HostUpdate(const ParameterList& parameters, const TrainConfig& train, const Residents& residents)
      : parameters_(parameters), train_(train), residents_(residents), up_(train.device, "copy to the device") {
    if (residents.update_ring.bytes() > 0) disk_.emplace(parameters, train, residents);
  }

  // On paper: what a part's update moves of the disk's.
  void book(int part) {
    if (disk_) disk_->book(part);
  }

  // Takes pieces of it when all earlier ones are done. New weights go to the device, where they stay there.
  void help(std::shared_ptr<UpdateJob> job);

  // So far: time spent, without what was waited for, elements updated, and bytes sent to the device.
  double seconds() const noexcept { return static_cast<double>(nanoseconds_.load()) * 1e-9; }
  int64_t elements() const noexcept { return elements_.load(); }
  int64_t up_bytes() const noexcept { return up_.bytes(); }

 private:
  Moment pieces(UpdateJob& job);
  int threads() const noexcept;

  const ParameterList& parameters_;
  const TrainConfig& train_;
  const Residents& residents_;
  Lane up_;
  std::optional<DiskUpdate> disk_;  // where some of it is there
  std::atomic<int64_t> nanoseconds_ = 0, elements_ = 0;
  std::optional<Worker> worker_;  // from the first update on: a planner has none
};

}  // namespace tigon
