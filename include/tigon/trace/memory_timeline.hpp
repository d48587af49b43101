#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/trace/recording.hpp"

namespace tigon {

// The device's memory over one step, block by block: of a step that ran, or of a plan. What the report draws.
struct MemoryTimeline {
  struct Block {
    int32_t name = 0;  // its place in `names`
    MemoryClass memory_class = MemoryClass::other;
    int64_t bytes = 0;  // what it takes
    int64_t offset = 0;
    int64_t birth = 0;
    int64_t death = -1;  // negative: it is there when the step is over
    int32_t place = 0;   // its place in `places`
  };
  struct Phase {
    std::string name;
    int64_t begin = 0, end = 0;
  };

  const char* unit =
      "ns";  // of times, from the step's begin: nanoseconds, or the plan's "events", a birth or death each
  int64_t step = 0;
  int64_t total_bytes = 0;  // that the plan took
  std::vector<std::string> names;
  std::vector<std::string> places;  // where a block was born: "forward · layers.3 · gate_up"; the first is ""
  std::vector<Phase> phases{};      // in their order
  std::vector<Block> blocks{};      // in the order of their births

  int64_t peak_bytes() const;
  // The JSON of format "tigon-memory".
  std::string json() const;
};

// Of the first recorded step.
MemoryTimeline memory_timeline(const Recording& recording);

// "forward", "loss", "backward" or "update": what a scope right below the step belongs to; "" where it is none of them.
std::string_view phase_of_scope(std::string_view name);

}  // namespace tigon
