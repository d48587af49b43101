#pragma once

#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "tigon/core/scope.hpp"
#include "tigon/train/trainer.hpp"
#include "train/residency/moment.hpp"

namespace tigon {

// How long whoever computes waits for what is elsewhere: on a GPU by events around the waits of its stream, else by the
// clock.
class WaitClock final : public Observer {
 public:
  // The waits of one step. On a GPU they are known when it is done.
  struct Step {
    struct Wait {
      std::unique_ptr<DeviceEvent> begin{}, end{};
      double Waits::*kind = nullptr;
    };
    Waits seconds;
    std::vector<Wait> queued;
  };

  void enter(const Context& ctx, std::string_view name, int64_t) override {
    double Waits::*kind = name == kWaitForCopies    ? &Waits::copies
                          : name == kWaitForUpdates ? &Waits::updates
                          : name == kWaitForDisk    ? &Waits::disk
                                                    : nullptr;
    if (kind != nullptr) {
      if (ctx.device.kind == DeviceKind::cpu) {
        began_ = Clock::now();
      } else {
        step_.queued.push_back({.begin = moment(ctx), .kind = kind});
      }
    }
    scopes_.push_back(kind);  // last: a scope whose beginning has failed has no end
  }
  void leave(const Context& ctx) noexcept override try {
    double Waits::*const kind = scopes_.back();
    scopes_.pop_back();
    if (kind == nullptr) return;
    if (ctx.device.kind == DeviceKind::cpu) {
      step_.seconds.*kind += std::chrono::duration<double>(Clock::now() - began_).count();
    } else {
      step_.queued.back().end = moment(ctx);
    }
  } catch (const std::exception&) {  // NOLINT: a wait without an end is not counted; others hear of a broken device
  }

  // The waits since the last call.
  Step take() { return std::exchange(step_, {}); }
  // Of a step that is done.
  Waits seconds(Step step) {
    Waits sum = step.seconds;
    for (const Step::Wait& wait : step.queued) {
      if (wait.begin && wait.end) sum.*wait.kind += wait.begin->ms_until(*wait.end) / 1e3;
    }
    give_back(std::move(step));
    return sum;
  }
  // Nobody asks for these.
  void give_back(Step step) {
    for (Step::Wait& wait : step.queued) {
      for (auto* event : {&wait.begin, &wait.end}) {
        if (*event) free_.push_back(std::move(*event));
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::unique_ptr<DeviceEvent> moment(const Context& ctx) {
    std::unique_ptr<DeviceEvent> event;
    if (free_.empty()) {
      event = std::make_unique<DeviceEvent>(ctx.device);
    } else {
      event = std::move(free_.back());
      free_.pop_back();
    }
    event->record(ctx);
    return event;
  }

  std::vector<double Waits::*> scopes_;
  Clock::time_point began_;
  Step step_;
  std::vector<std::unique_ptr<DeviceEvent>> free_;
};

}  // namespace tigon
