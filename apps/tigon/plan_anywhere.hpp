#pragma once

#include <string>

#include "tigon/train/planner.hpp"

namespace tigon::app {

// On the device; without a GPU as on the one that the CUDA backend assumes; without that backend, by the CPU's kernels.
// Changes `train` to what was planned, and says in `note` where that is not quite what the device will hold.
MemoryPlan plan_anywhere(const ModelConfig& model, const ParameterList& parameters, TrainConfig& train,
                         std::string& note);

}  // namespace tigon::app
