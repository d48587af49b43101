#include "tigon/train/optimizer.hpp"

#include "tigon/core/error.hpp"
#include "tigon/train/train_config.hpp"

namespace tigon {

namespace {

constexpr std::string_view kNames[] = {"adamw", "adamw8"};

bool in_8_bits(const ParameterList& parameters, int parameter, const OptimizerOptions& options) {
  if (options.kind != Optimizer::adamw8) return false;
  const Parameter& p = parameters.all[static_cast<size_t>(parameter)];
  if (parameter == parameters.embedding && !options.embedding_in_8_bits) return false;
  return p.decays && p.elements() >= options.smallest_in_8_bits;
}

}  // namespace

Optimizer optimizer_from_string(std::string_view text) {
  std::string known;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == text) return static_cast<Optimizer>(i);
    known += (i > 0 ? ", " : "") + std::string(kNames[i]);
  }
  throw Error(ErrorCode::invalid_argument, {.where = "--optimizer",
                                            .what = "there is no such optimizer",
                                            .expected = known,
                                            .got = "'" + std::string(text) + "'"});
}

std::string_view to_string(Optimizer optimizer) noexcept { return kNames[static_cast<size_t>(optimizer)]; }

std::vector<std::string> optimizer_names() { return {std::begin(kNames), std::end(kNames)}; }

std::vector<StateSpec> optimizer_states(const ParameterList& parameters, int parameter, const TrainConfig& train) {
  const Precision& precision = train.precision;
  std::vector<StateSpec> list;
  if (!parameters.all[static_cast<size_t>(parameter)].trains) return list;
  if (precision.master) list.push_back({.name = "master", .dtype = *precision.master, .copies_weight = true});
  if (!in_8_bits(parameters, parameter, train.optimizer)) {
    list.push_back({.name = "m", .dtype = precision.m});
    list.push_back({.name = "v", .dtype = precision.v});
    return list;
  }
  for (const char* name : {"m", "v"}) list.push_back({.name = name, .dtype = DType::u8});
  for (const char* name : {"m_scale", "v_scale"}) list.push_back({.name = name, .span = ops::kCodeBlock});
  return list;
}

int64_t update_unit(const TrainConfig& train) {
  return train.optimizer.kind == Optimizer::adamw8 ? ops::kCodeBlock : 1;
}

int64_t state_bytes(const ParameterList& parameters, const TrainConfig& train) {
  int64_t bytes = 0;
  for (size_t i = 0; i < parameters.all.size(); ++i) {
    for (const StateSpec& state : optimizer_states(parameters, static_cast<int>(i), train))
      bytes += state.bytes(parameters.all[i].elements());
  }
  return bytes;
}

int64_t static_bytes(const ParameterList& parameters, const TrainConfig& train) {
  int64_t weights = 0;
  for (const Parameter& p : parameters.all)
    weights += train.in_nf4(p) ? nf4_bytes(p) : p.elements() * size_of(train.precision.weight);
  return weights + parameters.trained_elements() * size_of(train.precision.grad) + state_bytes(parameters, train);
}

}  // namespace tigon
