#pragma once

#include "ops/check.hpp"
#include "tigon/ops/cross_entropy.hpp"

namespace tigon::ops {

// The checks that both cross entropies share.
struct LossArguments {
  int64_t tokens = 0;
  int64_t vocab = 0;
  const char* like_name;  // "logits" or "x": whose type the losses follow
  const Tensor& like;
  const Tensor& target;
  const Tensor& class_weight;
  const Tensor& token_scale;
  const CrossEntropyOptions& options;
};
void check_loss(const Check& check, const LossArguments& args);

// Shapes and types of the outputs, and that they are apart from each other and from what the arguments hold.
void check_loss_outputs(const Check& check, const LossArguments& args, const CrossEntropyOutputs& out);

// An upstream gradient: [1] or [tokens].
void check_dloss(const Check& check, const LossArguments& args, const Tensor& dloss);

}  // namespace tigon::ops
