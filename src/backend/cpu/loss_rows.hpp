#pragma once

#include "tigon/ops/cross_entropy.hpp"

// The arithmetic of the loss, row by row: what cross_entropy and fused_linear_cross_entropy share.
namespace tigon::cpu {

// What a loss call is about, as its argument struct says it. dloss may be absent (then 1).
struct LossInputs {
  Tensor target{};        // [tokens]
  Tensor class_weight{};  // [V], optional
  Tensor token_scale{};   // [tokens], optional
  Tensor dloss{};         // [1] or [tokens], optional
  ops::CrossEntropyOptions options{};
  ops::CrossEntropyOutputs out{};
  int64_t vocab = 0;
};

// Softmax of one row in two numbers: p_j = e^(x'_j − shift) / sum.
struct RowScale {
  double shift = 0;
  double sum = 1;
};

// What is known of a row of which some columns were seen.
struct RowSums {
  bool any = false;  // whether any were
  float max = 0;     // the largest x, where it first stands:
  int64_t predicted = 0;
  float shift = 0;          // near the largest x'
  double sum = 0;           // Σ_j e^(x'_j − shift)
  double target_logit = 0;  // x'_y
  double weighted_sum = 0;  // Σ_j w_j·(x'_j − shift), with label smoothing
  double weights = 0;       // Σ_j w_j, with label smoothing

  RowScale scale() const { return {.shift = static_cast<double>(shift), .sum = sum}; }
};

// A row of logits, or a block of its columns that begins at class `first`.
struct LogitRow {
  DType dtype = DType::f32;
  const void* logits = nullptr;
  int64_t count = 0;
  int64_t first = 0;
};

// One call's loss over all tokens. Rows may come in any order and from any thread, each once; `finish` then adds up the
// per-token values in the order of the tokens.
class LossBatch {
 public:
  // Books the per-token results and, unless ctx is measuring, counts the targets.
  LossBatch(const Context& ctx, const LossInputs& inputs);

  int64_t tokens() const { return tokens_; }
  int64_t counted_tokens() const { return counted_; }
  bool counted(int64_t token) const { return target(token) != in_.options.ignore_index; }

  // Columns of a counted token's row, and those that come after them.
  void add_columns(int64_t token, const LogitRow& columns, RowSums& sums) const;
  // The loss of the token, from its whole row, written to the outputs.
  void finish_row(int64_t token, const RowSums& sums) const;
  RowScale add_row(int64_t token, const LogitRow& row) const {
    RowSums sums;
    add_columns(token, row, sums);
    finish_row(token, sums);
    return sums.scale();
  }
  // Softmax of a whole row whose lse forward gave.
  RowScale row_scale(const LogitRow& row, float lse) const;
  // The gradient of a row, or of some of its columns, into dlogits (which may be the logits); `stream` stores it past
  // the cache, for rows aligned to whole vectors, and asks for a `flush_streams` by the same thread when it is done.
  void gradient_row(int64_t token, const LogitRow& row, const RowScale& scale, void* dlogits, bool stream) const;
  // The same over f32 logits that then hold their gradient, in f32 or, in the first half of the row's bytes, in bf16.
  void gradient_in_place(int64_t token, const LogitRow& row, const RowScale& scale, DType type) const;
  static void flush_streams();
  // An ignored token counts nothing.
  void ignore_row(int64_t token) const;
  // Writes the reduced outputs.
  void finish() const;

 private:
  struct TokenLoss {
    float loss, z_loss, right;  // as they enter the reduced loss
  };

  int64_t target(int64_t token) const {
    return in_.target.dtype == DType::i32 ? in_.target.as<int32_t>()[token] : in_.target.as<int64_t>()[token];
  }
  double weight_of(int64_t class_index) const {
    return in_.class_weight ? static_cast<double>(in_.class_weight.as<float>()[class_index]) : 1.0;
  }
  const float* class_weights() const { return in_.class_weight ? in_.class_weight.as<float>() : nullptr; }
  double scale_of(int64_t token) const {
    return in_.token_scale ? static_cast<double>(in_.token_scale.as<float>()[token]) : 1.0;
  }
  double upstream_of(int64_t token) const;
  void write_gradient(int64_t token, const LogitRow& row, const RowScale& scale, void* dlogits, DType type,
                      bool stream) const;
  void write_token(int64_t token, const TokenLoss& loss, double lse, int64_t predicted) const;

  LossInputs in_;
  int64_t tokens_ = 0;
  int64_t counted_ = 0;
  double class_weight_sum_ = 0;  // Σ_j w_j
  double entropy_scale_ = 1;     // the reduction's factor: 1/Σ w_y for mean
  double z_scale_ = 1;           // 1/counted tokens for mean
  Buffer token_losses_;
};

}  // namespace tigon::cpu
