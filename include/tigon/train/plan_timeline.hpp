#pragma once

#include "tigon/trace/memory_timeline.hpp"
#include "tigon/train/planner.hpp"

namespace tigon {

// The device's memory over a step that nobody has run: its micro-batches, the first and one further, and the update.
MemoryTimeline memory_timeline(const MemoryPlan& plan);

}  // namespace tigon
