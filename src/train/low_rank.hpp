#pragma once

#include "train/update.hpp"

namespace tigon {

// What an optimizer of low rank does with a parameter that is updated whole: each matrix of the model's files that is
// in it by itself.
void low_rank_update(const Context& ctx, const ParameterList& parameters, const TrainConfig& train,
                     const UpdatePiece& piece, const Tensor& grad_scale, const UpdateArgs& args);

// The most scratch that an update of any parameter takes there: for threads that update, which no plan follows.
int64_t update_scratch(const ParameterList& parameters, const TrainConfig& train, Device device);

// Throws Error where a matrix has no such rank, or the optimizer has nothing to do.
void check_low_rank(const ParameterList& parameters, const TrainConfig& train);

}  // namespace tigon
