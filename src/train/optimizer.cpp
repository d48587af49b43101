#include "tigon/train/optimizer.hpp"

#include <algorithm>

#include "tigon/core/error.hpp"
#include "tigon/train/train_config.hpp"

namespace tigon {

namespace {

constexpr std::string_view kNames[] = {"adamw", "adamw8", "apollo", "apollo-mini"};

bool in_8_bits(const ParameterList& parameters, int parameter, const OptimizerOptions& options) {
  if (options.kind != Optimizer::adamw8) return false;
  const Parameter& p = parameters.all[static_cast<size_t>(parameter)];
  if (parameter == parameters.embedding && !options.embedding_in_8_bits) return false;
  return p.decays && p.elements() >= options.smallest_in_8_bits;
}

// Of m and v: `rank` numbers for each channel, the longer side, of each matrix of the model's files.
int64_t low_rank_elements(const Parameter& p, int64_t rank) {
  int64_t channels = 0;
  for (const ParameterPart& part : p.parts) channels += std::max(part.end - part.begin, p.sizes[1]);
  return channels * rank;
}

}  // namespace

int64_t rank_of(const OptimizerOptions& options) {
  return options.rank > 0 ? options.rank : options.kind == Optimizer::apollo_mini ? 1 : 256;
}
int64_t gap_of(const OptimizerOptions& options) { return options.gap > 0 ? options.gap : 200; }
double scale_of(const OptimizerOptions& options) {
  return options.scale > 0 ? options.scale : options.kind == Optimizer::apollo_mini ? 128.0 : 1.0;
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

std::vector<std::string> optimizer_names() { return {std::begin(kNames), std::end(kNames)}; }

std::vector<StateSpec> optimizer_states(const ParameterList& parameters, int parameter, const TrainConfig& train) {
  const Precision& precision = train.precision;
  std::vector<StateSpec> list;
  if (!parameters.all[static_cast<size_t>(parameter)].trains) return list;
  if (precision.master) list.push_back({.name = "master", .dtype = *precision.master, .copies_weight = true});
  if (updated_whole(parameters, parameter, train)) {
    const Parameter& p = parameters.all[static_cast<size_t>(parameter)];
    const int64_t count = low_rank_elements(p, rank_of(train.optimizer));
    list.push_back({.name = "m", .dtype = precision.m, .count = count});
    list.push_back({.name = "v", .dtype = precision.v, .count = count});
    list.push_back({.name = "last", .count = static_cast<int64_t>(p.parts.size())});
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
