#include "tigon/train/prediction.hpp"

#include <algorithm>

#include "train/step_work.hpp"

namespace tigon {

namespace {

double tokens_of(const TrainConfig& train) { return static_cast<double>(train.tokens() * train.accumulate); }

// Seconds of an update that nothing else holds up.
double update_seconds(const MemoryPlan& plan, const ParameterList& parameters, const Rates& rates) {
  const MemoryPolicy& memory = plan.train.memory;
  if (!memory.moves_updates()) return 0;
  const Precision& precision = plan.train.precision;
  const auto count = static_cast<double>(parameters.trained_elements());
  const auto bytes = [&](Home home, DType dtype) {
    return home == Home::device ? 0.0 : count * static_cast<double>(size_of(dtype));
  };
  // A weight comes only where it is what AdamW changes, and not the copy of a master.
  const double states =
      memory.homes.states == Home::device ? 0.0 : static_cast<double>(state_bytes(parameters, plan.train));
  const double weight = bytes(memory.homes.weights, precision.weight);
  const double up = states + bytes(memory.homes.gradients, precision.grad) + (precision.master ? 0.0 : weight);
  const double down = states + weight;
  const double device = std::max(up / rates.up, down / rates.down), host = count / rates.host_update;
  switch (memory.updater) {
    case Updater::cpu: return host;
    case Updater::both: return 1 / (1 / host + 1 / device);
    default: return device;
  }
}

}  // namespace

double step_flops(const ModelConfig& model, const TrainConfig& train) {
  double layer = 0;
  for (const StageId stage : {StageId::qkv, StageId::o_proj, StageId::mlp}) layer += stage_flops(model, train, stage);
  const double head = head_flops(model);
  // Forward, and backward by x and by the weights, which are not differentiated where they are frozen.
  const double times = train.lora.any() ? 2 : 3;
  const double attention = 3 * stage_flops(model, train, StageId::attention);
  return ((times * layer + attention) * static_cast<double>(model.layers) + times * head) * tokens_of(train);
}

double recompute_flops(const ModelConfig& model, const TrainConfig& train) {
  double layer = 0;
  for (const StageId stage : {StageId::qkv, StageId::attention, StageId::o_proj, StageId::gate_up})
    layer += runs_again(train, stage) ? stage_flops(model, train, stage) : 0;
  return (layer * static_cast<double>(model.layers) + (head_runs_again(train) ? head_flops(model) : 0)) *
         tokens_of(train);
}

Prediction predict_step(const ModelConfig& model, const MemoryPlan& plan, const Rates& rates) {
  const TrainConfig& train = plan.train;
  if (rates.gemm <= 0) return {};
  const double flops = step_flops(model, train), again = recompute_flops(model, train);
  const double share = train.lora.any() ? 2 : 3;
  const double forward = flops / share / rates.gemm, backward = (flops - flops / share + again) / rates.gemm;
  Prediction p{.compute = forward + backward};
  if (train.memory.homes.any_away()) {
    if (rates.up <= 0 || rates.down <= 0 || rates.host_update <= 0) return {};
    p.up = static_cast<double>(plan.up_bytes) / rates.up;
    p.down = static_cast<double>(plan.down_bytes) / rates.down;
    p.update = update_seconds(plan, ParameterList(model, train.lora), rates);
  }
  // Weights come in both halves, gradients go in backward. The update goes on beside the next forward, and without
  // clipping beside backward as well.
  const double first = std::max(forward, p.up / 2), second = std::max({backward, p.up / 2, p.down});
  p.seconds = plan.updates_early ? std::max(first + second, p.update) : std::max(first, p.update) + second;
  if (train.memory.homes.any_on_disk()) {
    if (rates.disk_read <= 0 || rates.disk_write <= 0) return {};
    p.disk = std::max(static_cast<double>(plan.disk_step.read) / rates.disk_read,
                      static_cast<double>(plan.disk_step.written) / rates.disk_write);
    p.seconds = std::max(p.seconds, p.disk);
  }
  return p;
}

}  // namespace tigon
