#pragma once

#include "tigon/train/trainer.hpp"
#include "train/residency/device_update.hpp"
#include "train/residency/host_update.hpp"

namespace tigon {

// Updates of parameters of which something is away from the device, part by part in the order in which the next forward
// needs them, beside what computes: by the host, by the device, or by both. Nobody waits for all of it: each part is
// waited for where it is used.
class PartUpdates {
 public:
  PartUpdates(const ParameterList& parameters, const TrainConfig& train, const Residents& residents);

  // One part, when its gradient is at home (`gradient`) and all is computed that compute.stream holds now. `clip` is
  // the clipping factor on the device, and `host_clip` when the host has it too; without `clip` there is none.
  void part(const Context& compute, int part, const Moment& gradient, const Tensor& clip, const Moment& host_clip,
            const UpdateArgs& args);

  const Moment& updated(int part) const { return updated_[static_cast<size_t>(part)]; }
  // What ctx.stream gets from now on comes after the part's last update.
  void hold(const Context& ctx, int part) const {
    if (ctx.measuring()) return;
    // The disk is slower than who updates what is there.
    updated(part).hold(ctx, residents_.update_ring.bytes() > 0 ? kWaitForDisk : kWaitForUpdates);
  }
  // Throws what an update has failed of; waits for nothing.
  void check() const;
  // Waits for all updates.
  void finish() const;
  // Adds what updates have moved and done so far.
  void add_to(Traffic& traffic) const noexcept;
  // Copies all weights from home to the device, where they stay there as well: after they were read from files.
  void refresh(const Context& compute, Lane& up);

 private:
  const ParameterList& parameters_;
  const TrainConfig& train_;
  const Residents& residents_;
  std::vector<Moment> updated_;
  std::optional<HostUpdate> host_;
  std::optional<DeviceUpdate> device_;
};

}  // namespace tigon
