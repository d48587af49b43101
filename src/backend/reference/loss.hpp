#pragma once

#include <vector>

#include "tigon/ops/cross_entropy.hpp"

// The loss of one token, plainly: what both reference cross entropies call row by row.
namespace tigon::reference {

struct LossBatch {
  const Tensor& target;
  const Tensor& class_weight;
  const Tensor& token_scale;
  Tensor dloss;  // may be absent: then 1
  const ops::CrossEntropyOptions& options;
  double entropy_scale = 1;  // the reduction's factors
  double z_scale = 1;
  int64_t counted = 0;

  LossBatch(const Tensor& targets, const Tensor& class_weights, const Tensor& token_scales, const Tensor& upstream,
            const ops::CrossEntropyOptions& loss_options);
  bool is_counted(int64_t token) const;
};

struct TokenLoss {
  double loss = 0;
  double z_loss = 0;
  double lse = 0;
  int64_t predicted = -1;
  std::vector<double> gradient{};  // by logit; empty for ignored tokens
};

TokenLoss token_loss(const LossBatch& batch, int64_t token, const std::vector<double>& logits);

// Writes what `losses`, one per token, add up to.
void write_losses(const LossBatch& batch, const std::vector<TokenLoss>& losses, const ops::CrossEntropyOutputs& out);

}  // namespace tigon::reference
