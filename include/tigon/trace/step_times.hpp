#pragma once

#include <string>
#include <vector>

#include "tigon/trace/recording.hpp"

namespace tigon {

// Where a step's time went: one row for each stage of a block in each phase, all layers together, and one for what is
// no stage.
struct StepTimes {
  struct Row {
    std::string phase;  // "forward", "loss", "backward", "recompute", "update", "other"
    std::string name;   // "qkv"
    int64_t calls = 0;
    double seconds = 0;
  };
  int64_t step = 0;
  double seconds = 0;  // of the step; the rows add up to it
  std::vector<Row> rows{};
};

// Of the first recorded step. On a GPU whose activities were seen, what ran there; else by the scopes of the thread
// that runs the steps.
StepTimes step_times(const Recording& recording);

}  // namespace tigon
