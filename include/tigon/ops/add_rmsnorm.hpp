#pragma once

#include "tigon/ops/rmsnorm.hpp"

namespace tigon::ops {

// residual_out = x + residual (rounded to x's type), y = rmsnorm(residual_out), in one pass.
// residual_out is what backward needs as its x; it may be x or residual. y may be x.
struct AddRmsnormForward {
  Tensor x{};             // [tokens, hidden]
  Tensor residual{};      // [tokens, hidden]
  Tensor weight{};        // [hidden], optional
  Tensor residual_out{};  // [tokens, hidden]
  Tensor y{};             // [tokens, hidden]
  Tensor rstd{};          // [tokens] f32, optional
  double eps = 1e-6;
  double offset = 0.0;
  NormCasting casting = NormCasting::llama;
};
void add_rmsnorm_forward(const Context& ctx, const AddRmsnormForward& args);

// dx = rmsnorm's dx + dresidual_out: the gradient of x and of residual alike, which are one and the same array.
struct AddRmsnormBackward {
  Tensor dy{};             // [tokens, hidden]
  Tensor dresidual_out{};  // [tokens, hidden], optional: what arrives at residual_out from above
  Tensor residual_out{};   // [tokens, hidden], from forward
  Tensor weight{};         // [hidden], optional
  Tensor rstd{};           // [tokens] f32, from forward
  Tensor dx{};             // [tokens, hidden]; may be dy or dresidual_out
  Tensor dweight{};        // [hidden], optional
  double offset = 0.0;
  NormCasting casting = NormCasting::llama;
  bool accumulate_dweight = false;
};
void add_rmsnorm_backward(const Context& ctx, const AddRmsnormBackward& args);

}  // namespace tigon::ops
