#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/core/context.hpp"
#include "tigon/ops/device_trace.hpp"

namespace tigon {

// One Scope, as it ran. Times are nanoseconds of std::chrono::steady_clock.
struct RecordedScope {
  int32_t name = 0;     // its place in Recording::names
  int64_t index = -1;   // the scope's own; negative: none
  int32_t parent = -1;  // the scope around it, of the same thread
  int32_t thread = 0;   // in the order in which they appeared; 0 runs the steps
  int64_t begin = 0;
  int64_t end = -1;  // negative: it was still open
};

// One block of the device's memory.
struct RecordedBlock {
  int32_t name = 0;
  MemoryClass memory_class = MemoryClass::other;
  int64_t bytes = 0;    // as asked for
  int64_t granted = 0;  // what it takes
  int64_t offset = 0;   // its place in the memory that the plan took
  int32_t scope = -1;   // in which it was born; negative: it stays from step to step
};

// A birth or a death of a block.
struct MemoryEvent {
  int64_t time = 0;
  int32_t block = 0;
  bool birth = true;
};

// A stretch of the device's memory.
struct MemoryRegion {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// What happened in the steps that a Recorder watched: what every picture of them is drawn from.
struct Recording {
  std::vector<std::string> names;
  std::vector<RecordedScope> scopes;  // in the order of their beginnings
  std::vector<RecordedBlock> blocks;
  std::vector<MemoryEvent> memory;  // in their order
  std::vector<MemoryRegion> regions;
  uint64_t address = 0;  // of offset 0
  Device device{};
  std::vector<DeviceActivity> activities;  // on a GPU, where they can be seen
  DeviceDescription description;
  int64_t first_step = 0, last_step = -1;  // as the run counts; last < first: nothing was recorded
  bool cut = false;                        // there was more than is kept
  std::string note;                        // why something is missing

  const std::string& name(int32_t place) const { return names[static_cast<size_t>(place)]; }
  // "layers.3", "qkv".
  std::string text(const RecordedScope& scope) const;
  // How many of the events in `memory` had happened when a step was over; all of them where it never was.
  size_t events_until(int64_t step) const;
  // The most bytes alive at one time.
  int64_t peak_bytes() const;
};

// The scope around all that a step does, whose index is the step.
inline constexpr const char* kStepScope = "step";
// How the names of scopes begin in which a thread waits.
inline constexpr std::string_view kWaitScope = "wait for ";

}  // namespace tigon
