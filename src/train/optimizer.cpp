#include "tigon/train/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tigon/core/error.hpp"
#include "tigon/train/train_config.hpp"

namespace tigon {

namespace {

constexpr std::string_view kNames[] = {"adamw", "adamw8", "apollo", "apollo-mini", "galore"};

bool in_8_bits(const ParameterList& parameters, int parameter, const OptimizerOptions& options) {
  if (options.kind != Optimizer::adamw8) return false;
  const Parameter& p = parameters.all[static_cast<size_t>(parameter)];
  if (parameter == parameters.embedding && !options.embedding_in_8_bits) return false;
  return p.decays && p.elements() >= options.smallest_in_8_bits;
}

// Of each matrix of the model's files `rank` numbers for each element of its longer side, its channels, in m and in v;
// for each of its shorter side in a projection.
void add_low_rank(const Parameter& p, const TrainConfig& train, std::vector<StateSpec>& list) {
  const int64_t rank = rank_of(train.optimizer);
  int64_t longer = 0, shorter = 0;
  for (const ParameterPart& part : p.parts) {
    longer += std::max(part.end - part.begin, p.sizes[1]);
    shorter += std::min(part.end - part.begin, p.sizes[1]);
  }
  list.push_back({.name = "m", .dtype = train.precision.m, .count = longer * rank});
  list.push_back({.name = "v", .dtype = train.precision.v, .count = longer * rank});
  if (train.optimizer.kind == Optimizer::galore) {
    list.push_back({.name = "projection", .dtype = train.precision.grad, .count = shorter * rank});
  } else {
    list.push_back({.name = "last", .count = std::ssize(p.parts)});
  }
}

}  // namespace

int64_t rank_of(const OptimizerOptions& options) {
  return options.rank > 0 ? options.rank : options.kind == Optimizer::apollo_mini ? 1 : 256;
}
int64_t gap_of(const OptimizerOptions& options) { return options.gap > 0 ? options.gap : 200; }
double scale_of(const OptimizerOptions& options) {
  if (options.scale > 0) return options.scale;
  return options.kind == Optimizer::apollo_mini ? 128.0 : options.kind == Optimizer::galore ? 0.25 : 1.0;
}

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

std::string optimizer_text(const OptimizerOptions& options) {
  std::string text(to_string(options.kind));
  if (options.embedding_in_8_bits) text += " with the embedding";
  if (is_low_rank(options.kind)) {
    text += fmt::format(", --rank {} --gap {} --scale {}", rank_of(options), gap_of(options), scale_of(options));
  }
  return text;
}

std::vector<std::string> optimizer_names() { return {std::begin(kNames), std::end(kNames)}; }

std::vector<StateSpec> optimizer_states(const ParameterList& parameters, int parameter, const TrainConfig& train) {
  const Precision& precision = train.precision;
  std::vector<StateSpec> list;
  if (!parameters.all[static_cast<size_t>(parameter)].trains) return list;
  if (precision.master) list.push_back({.name = "master", .dtype = *precision.master, .copies_weight = true});
  if (updated_whole(parameters, parameter, train)) {
    add_low_rank(parameters.all[static_cast<size_t>(parameter)], train, list);
    return list;
  }
  if (!in_8_bits(parameters, parameter, train.optimizer)) {
    list.push_back({.name = "m", .dtype = precision.m});
    list.push_back({.name = "v", .dtype = precision.v});
    return list;
  }
  for (const char* name : {"m", "v"}) list.push_back({.name = name, .dtype = DType::u8});
  for (const char* name : {"m_scale", "v_scale"}) list.push_back({.name = name, .span = ops::kCodeBlock});
  return list;
}

bool updated_whole(const ParameterList& parameters, int parameter, const TrainConfig& train) {
  const Parameter& p = parameters.all[static_cast<size_t>(parameter)];
  return is_low_rank(train.optimizer.kind) && p.trains && p.sizes.size() == 2 && parameter != parameters.embedding &&
         parameter != parameters.head;
}

int64_t piece_elements(const ParameterList& parameters, int parameter, const TrainConfig& train, int64_t most,
                       int64_t first) {
  const int64_t left = parameters.all[static_cast<size_t>(parameter)].elements() - first;
  return updated_whole(parameters, parameter, train) ? left : std::min(left, most);
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
