#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// Softmax attention, o = softmax(scale·q·kᵀ + causal mask)·v, blocked so that the T×T matrix never exists. Query head h
// reads key-value head h / (heads / kv_heads). Saves lse. Deterministic.
struct AttentionForward {
  Tensor q{};          // [batch, seq, heads, D]; any strides with D contiguous
  Tensor k{};          // [batch, seq, kv_heads, D]
  Tensor v{};          // [batch, seq, kv_heads, D]
  Tensor o{};          // [batch, seq, heads, D]
  Tensor lse{};        // [batch, heads, seq] f32, optional: ln Σ e^score
  double scale = 0.0;  // 0 means 1/sqrt(D)
  bool causal = true;
  // [batch, seq] i32, optional, with causal: the first key that each query sees, so that documents that stand one
  // behind the other in a row do not see each other. From 0 to the query's own place, and never falling within a row:
  // on a GPU nobody looks whether that is so, and a kernel that is given others may not end.
  Tensor starts{};
};
void attention_forward(const Context& ctx, const AttentionForward& args);

struct AttentionBackward {
  Tensor dout{};  // [batch, seq, heads, D]
  Tensor q{};
  Tensor k{};
  Tensor v{};
  Tensor o{};    // from forward
  Tensor lse{};  // from forward
  Tensor dq{};   // [batch, seq, heads, D]
  Tensor dk{};   // [batch, seq, kv_heads, D]
  Tensor dv{};   // [batch, seq, kv_heads, D]
  double scale = 0.0;
  bool causal = true;
  Tensor starts{};  // as in forward
  // false: the gradients may differ in their last bits from run to run where that is faster: by cuDNN, on a GPU for
  // which we have no faster kernel of our own.
  bool deterministic = true;
};
void attention_backward(const Context& ctx, const AttentionBackward& args);

}  // namespace tigon::ops
