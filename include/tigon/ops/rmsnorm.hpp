#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// Where a 16-bit norm rounds. `llama` rounds x·rstd to x's type before the weight, as Hugging Face's Llama does;
// `gemma` rounds once, at the end. `none` is Liger's third name; here, where all arithmetic is f32, it equals `gemma`.
enum class NormCasting : int32_t { llama = 0, gemma = 1, none = 2 };

// y = (x·rstd)·(offset + weight), rstd = 1/sqrt(mean(x²) + eps) over each row.
// Saves rstd for backward. y may be x. The same bits on every run and thread count; on a GPU a row's last bits may
// depend on where it begins within 16 bytes, here and in backward.
struct RmsnormForward {
  Tensor x{};       // [tokens, hidden]
  Tensor weight{};  // [hidden], optional (then 1 − offset)
  Tensor y{};       // [tokens, hidden], x's type
  Tensor rstd{};    // [tokens] f32, optional
  double eps = 1e-6;
  double offset = 0.0;
  NormCasting casting = NormCasting::llama;
};
void rmsnorm_forward(const Context& ctx, const RmsnormForward& args);

// dx = rstd·(m − x·rstd²·mean(m·x)), m = dy·(offset + weight);  dweight = Σ_tokens dy·(x·rstd), summed in f32.
// dx may be dy or x. The order of the sum over tokens is fixed by the shape, so dweight has the same bits on every run
// and thread count.
struct RmsnormBackward {
  Tensor dy{};       // [tokens, hidden]
  Tensor x{};        // [tokens, hidden]
  Tensor weight{};   // [hidden], optional
  Tensor rstd{};     // [tokens] f32, from forward
  Tensor dx{};       // [tokens, hidden], optional
  Tensor dweight{};  // [hidden], any floating type, optional
  double offset = 0.0;
  NormCasting casting = NormCasting::llama;
  bool accumulate_dweight = false;  // add to dweight instead of overwriting it
};
void rmsnorm_backward(const Context& ctx, const RmsnormBackward& args);

}  // namespace tigon::ops
