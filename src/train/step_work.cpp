#include "train/step_work.hpp"

#include <algorithm>

#include "json/json.hpp"

namespace tigon {

namespace {

double product(int64_t a, int64_t b) { return 2.0 * static_cast<double>(a) * static_cast<double>(b); }

// Bytes that a stage without products reads and writes for one token, if each of its tensors passes memory once.
struct Bytes {
  double forward = 0, backward = 0;
};
Bytes stage_bytes(const ModelConfig& m, const TrainConfig& train, StageId stage) {
  const auto element = static_cast<double>(size_of(train.precision.weight));
  const double hidden = static_cast<double>(m.hidden) * element, inner = static_cast<double>(m.intermediate) * element;
  switch (stage) {
    // Two terms of the stream come in, their sum and the norm of it go out; backward the same number.
    case StageId::norm1:
    case StageId::norm2: return {4 * hidden, 4 * hidden};
    // gate and up, and their product; backward its gradient, gate and up, and the gradients of both.
    case StageId::activation: return {3 * inner, 5 * inner};
    default: return {};
  }
}

}  // namespace

double stage_flops(const ModelConfig& m, const TrainConfig& train, StageId stage) {
  switch (stage) {
    case StageId::qkv: return product(m.hidden, m.qkv_width());
    // Scores and their product with v, over the half of the keys that a causal mask leaves.
    case StageId::attention: return 2 * product(m.q_width(), train.seq) / 2;
    case StageId::o_proj: return product(m.q_width(), m.hidden);
    case StageId::gate_up: return 2 * product(m.hidden, m.intermediate);
    case StageId::down: return product(m.hidden, m.intermediate);
    case StageId::mlp: return 3 * product(m.hidden, m.intermediate);
    default: return 0;
  }
}

double head_flops(const ModelConfig& m) { return product(m.hidden, m.vocab); }

bool head_runs_again(const TrainConfig& train) { return train.memory.chunk.lean && train.fused.flce; }

bool runs_again(const TrainConfig& train, StageId stage) {
  // What down writes is another layer's input, and not made again; what a fused activation writes is made by its
  // backward. A tile makes its inner values again in backward, whatever is dropped.
  if (stage == StageId::down || stage == StageId::mlp) return false;
  if (stage == StageId::activation && train.fused.swiglu) return false;
  if (stage == StageId::gate_up && train.memory.mlp_tile > 0) return true;
  return (train.memory.recompute & stage_bit(stage)) != 0;
}

std::vector<StepWork> step_work(const ModelConfig& model, const TrainConfig& train, const ParameterList& parameters) {
  const auto tokens = static_cast<double>(train.tokens() * train.accumulate),
             layers = static_cast<double>(model.layers);
  const Precision& precision = train.precision;
  std::vector<StepWork> work;
  for (int s = 0; s < kStageCount; ++s) {
    const auto stage = static_cast<StageId>(s);
    const bool tiled = stage == StageId::gate_up || stage == StageId::activation || stage == StageId::down;
    if (stage == StageId::mlp ? train.memory.mlp_tile == 0 : tiled && train.memory.mlp_tile > 0) continue;
    const std::string name(to_string(stage));
    const double flops = stage_flops(model, train, stage) * tokens * layers;
    const Bytes bytes = stage_bytes(model, train, stage);
    work.push_back({"forward", name, flops, bytes.forward * tokens * layers});
    if (runs_again(train, stage)) work.push_back({"recompute", name, flops, bytes.forward * tokens * layers});
    const double again = stage == StageId::mlp ? stage_flops(model, train, StageId::gate_up) * tokens * layers : 0;
    // Frozen weights have no gradient; attention has its two all the same.
    const double times = train.lora.any() && stage != StageId::attention ? 1 : 2;
    work.push_back({"backward", name, times * flops + again, bytes.backward * tokens * layers});
  }
  const double rows = 2.0 * static_cast<double>(model.hidden) * static_cast<double>(size_of(precision.weight)) * tokens;
  work.push_back({"forward", "embed", 0, rows});
  const double products = (train.lora.any() ? 2 : 3) + (head_runs_again(train) ? 1 : 0);
  work.push_back({"loss", "loss", products * head_flops(model) * tokens, 0});
  work.push_back({"backward", "embed", 0, rows});
  const auto count = static_cast<double>(parameters.trained_elements());
  const auto weight = static_cast<double>(size_of(precision.weight)),
             grad = static_cast<double>(size_of(precision.grad));
  // The weight is read where there is no wider copy of it.
  work.push_back({"update", "update", 0,
                  2 * static_cast<double>(state_bytes(parameters, train)) +
                      count * (grad + (precision.master ? weight : 2 * weight))});
  work.push_back({"update", "norm", 0, count * grad});
  return work;
}

std::string times_json(const StepTimes& times, const std::vector<StepWork>& work, const Rates& rates) {
  Json root;
  root.set("format", "tigon-times");
  root.set("version", 1);
  root.set("step", times.step);
  root.set("seconds", times.seconds);
  Json::Array rows;
  for (const StepTimes::Row& row : times.rows) {
    Json json;
    json.set("phase", row.phase);
    json.set("name", row.name);
    json.set("calls", row.calls);
    json.set("seconds", row.seconds);
    for (const StepWork& w : work) {
      if (w.phase != row.phase || w.name != row.name) continue;
      json.set("flops", w.flops);
      json.set("bytes", w.bytes);
      if (w.flops > 0 && rates.gemm > 0) json.set("floor_seconds", w.flops / rates.gemm);
      if (w.flops == 0 && rates.copy > 0) json.set("floor_seconds", w.bytes / rates.copy);
    }
    rows.push_back(std::move(json));
  }
  root.set("rows", std::move(rows));
  return root.dump();
}

}  // namespace tigon
