#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// y = (x − mean)·rstd·weight + bias over each row; the variance is taken about the exact mean in a second pass over the
// row. Saves mean and rstd in f32. y may be x. Deterministic; on a GPU a row's
// last bits may depend on where it begins within 16 bytes, here and in backward.
struct LayernormForward {
  Tensor x{};       // [tokens, hidden]
  Tensor weight{};  // [hidden], optional
  Tensor bias{};    // [hidden], optional
  Tensor y{};       // [tokens, hidden]
  Tensor mean{};    // [tokens] f32, optional
  Tensor rstd{};    // [tokens] f32, optional
  double eps = 1e-5;
};
void layernorm_forward(const Context& ctx, const LayernormForward& args);

// dx = rstd·(m − mean(m) − xhat·mean(m·xhat)), m = dy·weight;  dweight = Σ dy·xhat;  dbias = Σ dy.
// dx may be dy or x. Deterministic.
struct LayernormBackward {
  Tensor dy{};                      // [tokens, hidden]
  Tensor x{};                       // [tokens, hidden]
  Tensor weight{};                  // [hidden], optional
  Tensor mean{};                    // [tokens] f32, from forward
  Tensor rstd{};                    // [tokens] f32, from forward
  Tensor dx{};                      // [tokens, hidden], optional
  Tensor dweight{};                 // [hidden], optional
  Tensor dbias{};                   // [hidden], optional
  bool accumulate_dweight = false;  // add to dweight and dbias
};
void layernorm_backward(const Context& ctx, const LayernormBackward& args);

}  // namespace tigon::ops
