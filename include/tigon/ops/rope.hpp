#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// Which elements rotate together: (d, d + D/2) as in Hugging Face, or neighbours (2d, 2d + 1) as in GPT-J.
enum class RopePairing : int32_t { half = 0, interleaved = 1 };

enum class RopeScalingKind : int32_t { none = 0, linear = 1, llama3 = 2, yarn = 3 };

// How the frequencies theta^(−2d/D) are stretched for long contexts; the fields carry the names of Hugging Face
// configs.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double original_max_position = 8192;
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  double attention_factor = 0.0;  // yarn: scales cos and sin; 0 means 0.1·ln(factor) + 1
};

// Rotates q and k by their positions: (a, b) → (a·cos − b·sin, b·cos + a·sin). One pass for both, grouped heads
// allowed, in place (q_out = q) or not. Angles come either from cos/sin tables or from positions and theta, in f32.
// Backward is the same rotation with sin negated. Saves nothing. Deterministic.
struct Rope {
  Tensor q{};      // [tokens, heads, D] or [batch, heads, seq, D]; any strides with D contiguous
  Tensor k{};      // the same with its own number of heads; optional
  Tensor q_out{};  // like q; may be q
  Tensor k_out{};  // like k; may be k
  // Tables [rows, rotary_dim/2] or [rows, rotary_dim] (the second half repeating the first, as Hugging Face passes it;
  // for interleaved pairing each value stands twice in a row), f32 or q's type. Row r serves token r. With rank-4 q,
  // rows may be seq (shared by the batch) or batch·seq.
  Tensor cos{};
  Tensor sin{};
  // Without tables: i32 or i64, [tokens], [seq] or [batch, seq]; absent means 0, 1, 2, … along tokens or seq. With
  // tables: which row of the tables each token uses; one that is not there is an error, on a GPU NaN.
  Tensor positions{};
  double theta = 10000.0;
  RopeScaling scaling{};
  int64_t rotary_dim = 0;  // 0 means all of D; the other elements pass unchanged
  RopePairing pairing = RopePairing::half;
};
void rope_forward(const Context& ctx, const Rope& args);
// q, k hold the incoming gradients and q_out, k_out receive the outgoing ones.
void rope_backward(const Context& ctx, const Rope& args);

}  // namespace tigon::ops
