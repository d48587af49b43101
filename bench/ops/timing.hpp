#pragma once

#include <chrono>
#include <vector>

#include "tigon/core/context.hpp"
#include "tigon/ops/device_memory.hpp"

namespace tigon::bench {

// Milliseconds of one call.
template <class F>
double time_ms(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Moments in the run of a context: the wall clock on a CPU, events in the stream on a GPU. Marking does not wait, so a
// GPU is kept busy by a host that runs ahead, and launching is not part of what is timed.
class Clock {
 public:
  explicit Clock(const Context& ctx) : ctx_(ctx) {}

  // The number of the new mark.
  size_t mark() {
    if (ctx_.device.kind == DeviceKind::cpu) {
      moments_.push_back(std::chrono::steady_clock::now());
      return moments_.size() - 1;
    }
    events_.emplace_back(ctx_.device).record(ctx_);
    return events_.size() - 1;
  }
  // Milliseconds between two marks; waits for the later one.
  double ms(size_t from, size_t to) const {
    if (ctx_.device.kind == DeviceKind::cpu)
      return std::chrono::duration<double, std::milli>(moments_[to] - moments_[from]).count();
    return events_[from].ms_until(events_[to]);
  }

 private:
  Context ctx_;
  std::vector<std::chrono::steady_clock::time_point> moments_;
  std::vector<DeviceEvent> events_;
};

// The value below which a share q of the samples lies, by linear interpolation.
double quantile(std::vector<double> samples, double q);

}  // namespace tigon::bench
