#pragma once

#include "tigon/core/scope.hpp"
#include "tigon/trace/memory_timeline.hpp"
#include "tigon/train/planner.hpp"

namespace tigon {

// Notes in a sequence that is being measured when each phase of the step begins.
class PhaseMarks final : public Observer {
 public:
  explicit PhaseMarks(Sequence& sequence) : sequence_(sequence) {}

  void enter(const Context&, std::string_view name, int64_t) override {
    if (depth_++ > 0) return;
    const std::string_view phase = phase_of_scope(name);
    auto& marks = sequence_.marks;
    if (phase.empty() || (!marks.empty() && marks.back().phase == phase)) return;
    marks.push_back({.tick = sequence_.ledger.now(), .phase = std::string(phase)});
  }
  void leave(const Context&) noexcept override { --depth_; }

 private:
  Sequence& sequence_;
  int depth_ = 0;
};

}  // namespace tigon
