#pragma once

#include <span>

#include "tigon/model/block.hpp"
#include "train/weight_source.hpp"

namespace tigon {

// How well each token of the vocabulary would follow, [rows, vocab], by the given rows of what the last block leaves:
// the last norm and the head of these alone.
OwnedTensor next_token_logits(const Context& ctx, const ModelConfig& model, const ParameterList& parameters,
                              WeightSource& weights, Stream stream, std::span<const int64_t> rows);

}  // namespace tigon
