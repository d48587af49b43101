#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

enum class Reduction : int32_t { mean = 0, sum = 1, none = 2 };

// What cross_entropy and fused_linear_cross_entropy share. With x' = softcap·tanh(x/softcap) (x itself without
// softcap), lse = ln Σ_j e^x'_j, y the target and w the class weights (1 without):
//   L = (1−s)·w_y·(lse − x'_y) + (s/V)·Σ_j w_j·(lse − x'_j) + z·lse²,   times the token's scale.
// mean divides the first two terms by Σ w_y over counted tokens and the last by their number. A batch without any
// counted token has loss 0 and gradient 0.
struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double label_smoothing = 0.0;  // s, in [0, 1]
  double z_loss = 0.0;           // z
  double softcap = 0.0;          // 0: none; else from 1e-30 to 1e30
  Reduction reduction = Reduction::mean;
};

// What a loss reports besides its value; every tensor is optional. With reduction none the first three are [tokens],
// else [1].
struct CrossEntropyOutputs {
  Tensor loss{};       // f32
  Tensor z_loss{};     // f32: the z-loss part alone, which `loss` contains
  Tensor accuracy{};   // f32: share of counted tokens predicted right (per token 0 or 1)
  Tensor predicted{};  // [tokens] i32 or i64: the largest logit, ties to the lowest index, −1 where ignored
  Tensor lse{};        // [tokens] f32: saved for backward; 0 where ignored
};

// The loss of given logits and, when dlogits is given, the gradient in the same pass: one read and one write of the
// logits. dlogits may be logits; without dlogits the logits are only read. Targets outside [0, V) other than
// ignore_index are an error before anything is written; on a GPU, where looking at targets would need a wait, such a
// token's loss is NaN and its gradient 0. Sums are f32 or better, in an order fixed by the shape (and on a GPU by where
// rows begin within 16 bytes).
struct CrossEntropyForward {
  Tensor logits{};        // [tokens, V]
  Tensor target{};        // [tokens] i32 or i64
  Tensor class_weight{};  // [V] f32, optional
  Tensor token_scale{};   // [tokens] f32, optional
  CrossEntropyOptions options{};
  CrossEntropyOutputs out{};
  Tensor dlogits{};  // [tokens, V], optional: gradient of the loss (of the sum of losses with reduction none)
};
void cross_entropy_forward(const Context& ctx, const CrossEntropyForward& args);

// The gradient under any upstream gradient: dlogits_ij = dloss_i · ∂L_i/∂x_ij. Reads only its inputs, so it can be
// called any number of times. dlogits may be logits.
struct CrossEntropyBackward {
  Tensor dloss{};         // f32, [tokens] or [1]
  Tensor logits{};        // [tokens, V]
  Tensor target{};        // [tokens]
  Tensor class_weight{};  // [V] f32, optional
  Tensor token_scale{};   // [tokens] f32, optional
  Tensor lse{};           // [tokens] f32, from forward
  CrossEntropyOptions options{};
  Tensor dlogits{};  // [tokens, V]
};
void cross_entropy_backward(const Context& ctx, const CrossEntropyBackward& args);

}  // namespace tigon::ops
