#pragma once

#include <string>
#include <vector>

#include "tigon/trace/step_times.hpp"
#include "tigon/train/prediction.hpp"

namespace tigon {

// FLOPs of a stage's products for one token, forward; 0 where it has none.
double stage_flops(const ModelConfig& model, const TrainConfig& train, StageId stage);
// Of the head.
double head_flops(const ModelConfig& model);
// Whether the loss takes its product with the head twice.
bool head_runs_again(const TrainConfig& train);
// Whether backward makes again what this stage wrote.
bool runs_again(const TrainConfig& train, StageId stage);

// The least that a part of a step has to do: FLOPs of products, or bytes that go through memory where it has none.
struct StepWork {
  std::string phase, name;  // as StepTimes has them
  double flops = 0, bytes = 0;
};
std::vector<StepWork> step_work(const ModelConfig& model, const TrainConfig& train, const ParameterList& parameters);

// The JSON of format "tigon-times": each row of `times` beside the time that its work takes at these rates.
std::string times_json(const StepTimes& times, const std::vector<StepWork>& work, const Rates& rates);

}  // namespace tigon
