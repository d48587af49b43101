#include "tigon/train/prediction.hpp"

#include <algorithm>

namespace tigon {

namespace {

double product(int64_t a, int64_t b) { return 2.0 * static_cast<double>(a) * static_cast<double>(b); }

// Of one token.
double qkv_flops(const ModelConfig& m) { return product(m.hidden, m.qkv_width()); }
double o_proj_flops(const ModelConfig& m) { return product(m.q_width(), m.hidden); }
double gate_up_flops(const ModelConfig& m) { return 2 * product(m.hidden, m.intermediate); }
// Scores and their product with v, over the half of the keys that a causal mask leaves.
double attention_flops(const ModelConfig& m, const TrainConfig& train) {
  return 2 * product(m.q_width(), train.seq) / 2;
}

double tokens_of(const TrainConfig& train) { return static_cast<double>(train.tokens() * train.accumulate); }

// Seconds of an update that nothing else holds up.
double update_seconds(const MemoryPlan& plan, const ParameterList& parameters, const Rates& rates) {
  const MemoryPolicy& memory = plan.train.memory;
  if (!memory.moves_updates()) return 0;
  const Precision& precision = plan.train.precision;
  const auto count = static_cast<double>(parameters.elements());
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
  const double layer = qkv_flops(model) + o_proj_flops(model) + gate_up_flops(model) +
                       product(model.hidden, model.intermediate) + attention_flops(model, train);
  const double per_token = layer * static_cast<double>(model.layers) + product(model.hidden, model.vocab);
  return 3 * per_token * tokens_of(train);
}

double recompute_flops(const ModelConfig& model, const TrainConfig& train) {
  const auto drops = [&](StageId stage) { return (train.memory.recompute & stage_bit(stage)) != 0; };
  double layer = 0;
  if (drops(StageId::qkv)) layer += qkv_flops(model);
  if (drops(StageId::attention)) layer += attention_flops(model, train);
  if (drops(StageId::o_proj)) layer += o_proj_flops(model);
  // What down writes is another layer's input, and not made again. A tile makes its inner values again anyway.
  if (drops(StageId::gate_up) || train.memory.mlp_tile > 0) layer += gate_up_flops(model);
  return layer * static_cast<double>(model.layers) * tokens_of(train);
}

Prediction predict_step(const ModelConfig& model, const MemoryPlan& plan, const Rates& rates) {
  const TrainConfig& train = plan.train;
  if (rates.gemm <= 0) return {};
  const double flops = step_flops(model, train), again = recompute_flops(model, train);
  const double forward = flops / 3 / rates.gemm, backward = (2 * flops / 3 + again) / rates.gemm;
  Prediction p{.compute = forward + backward};
  if (train.memory.homes.any_away()) {
    if (rates.up <= 0 || rates.down <= 0 || rates.host_update <= 0) return {};
    p.up = static_cast<double>(plan.up_bytes) / rates.up;
    p.down = static_cast<double>(plan.down_bytes) / rates.down;
    p.update = update_seconds(plan, ParameterList(model), rates);
  }
  // Weights come in both halves, gradients go in backward. The update goes on beside the next forward, and without
  // clipping beside backward as well.
  const double first = std::max(forward, p.up / 2), second = std::max({backward, p.up / 2, p.down});
  p.seconds = plan.updates_early ? std::max(first + second, p.update) : std::max(first, p.update) + second;
  return p;
}

}  // namespace tigon
