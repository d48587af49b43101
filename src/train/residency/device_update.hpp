#pragma once

#include <array>
#include <atomic>

#include "train/residency/lane.hpp"
#include "train/residency/update_job.hpp"

namespace tigon {

// Updates by the device, beside what computes there. What of a piece is at home on the host comes into one of a few
// slots and goes back, the next piece coming while the one before it goes; what stays on the device is updated in
// place.
class DeviceUpdate {
 public:
  static constexpr int kSlots = 3;  // one coming, one in use, one going
  // Of one slot, for a piece of any parameter; 0 where nothing comes or goes.
  static int64_t slot_bytes(const ParameterList& parameters, const TrainConfig& train);

  DeviceUpdate(const ParameterList& parameters, const TrainConfig& train, const Residents& residents)
      : parameters_(parameters),
        train_(train),
        residents_(residents),
        up_(train.device, "copy to the device"),
        down_(train.device, "copy to the host") {}
  ~DeviceUpdate();
  DeviceUpdate(const DeviceUpdate&) = delete;
  DeviceUpdate& operator=(const DeviceUpdate&) = delete;

  // Takes pieces of it when all earlier ones are queued.
  void help(std::shared_ptr<UpdateJob> job);

  // So far.
  int64_t elements() const noexcept { return elements_.load(); }
  int64_t up_bytes() const noexcept { return up_.bytes(); }
  int64_t down_bytes() const noexcept { return down_.bytes(); }

 private:
  Moment pieces(UpdateJob& job);
  // When it is at home.
  Moment piece(const Context& ctx, const UpdateJob::Begin& begin, const UpdateJob::Piece& piece);

  const ParameterList& parameters_;
  const TrainConfig& train_;
  const Residents& residents_;
  std::optional<DeviceStream> stream_;  // the updates', which the next forward waits for
  Lane up_, down_;
  std::array<Moment, kSlots> gone_;  // when what a slot held is at home
  size_t slot_ = 0;
  std::atomic<int64_t> elements_ = 0;
  std::optional<Worker> worker_;  // from the first update on
};

}  // namespace tigon
