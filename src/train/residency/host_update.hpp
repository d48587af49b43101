#pragma once

#include <atomic>

#include "train/residency/disk_update.hpp"
#include "train/residency/lane.hpp"
#include "train/update.hpp"

namespace tigon {

// AdamW by the host's cores over states that stay there, part by part on a thread of its own, in the order in which
// the next forward needs the parts. Nobody waits for all of it: each part is waited for where it is used.
class HostUpdate {
 public:
  HostUpdate(const ParameterList& parameters, const TrainConfig& train, Residents& residents, Lane& up);

  // One part, when its gradient is at home and, if it is `scaled`, the clipping factor is known. Then the new weights
  // go to the device, where they stay there.
  void part(const Context& compute, int part, const Moment& gradient, const Moment& scale, bool scaled,
            const UpdateArgs& args);

  const Moment& updated(int part) const { return updated_[static_cast<size_t>(part)]; }
  // What ctx.stream gets from now on comes after the part's last update.
  void hold(const Context& ctx, int part) const {
    if (!ctx.measuring()) updated(part).hold(ctx);
  }
  // Throws what an update has failed of; waits for nothing.
  void check() const;
  // Waits for all updates.
  void finish() const;
  // Spent in updates so far, without what they waited for.
  double seconds() const noexcept { return static_cast<double>(nanoseconds_.load()) * 1e-9; }
  // Copies all weights to the device, where they stay there: after they were read from files.
  void refresh(const Context& compute);

 private:
  std::vector<Lane::Copy> copies_to_device(int part) const;

  const ParameterList& parameters_;
  const TrainConfig& train_;
  Residents& residents_;
  Lane& up_;
  std::vector<Moment> updated_;
  std::optional<DiskUpdate> disk_;  // where some of it is there
  std::atomic<int64_t> nanoseconds_ = 0;
  std::optional<Worker> worker_;  // from the first update on: a planner has none
};

}  // namespace tigon
