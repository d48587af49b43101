#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// y = x·weightᵀ + bias, accumulated in f32. Deterministic for any thread count.
struct LinearForward {
  Tensor x{};       // [tokens, in]
  Tensor weight{};  // [out, in]
  Tensor bias{};    // [out], optional
  Tensor y{};       // [tokens, out]
  bool accumulate_y = false;  // add to y; a bias is then there already
};
void linear_forward(const Context& ctx, const LinearForward& args);

// dx = dy·weight;  dweight = dyᵀ·x;  dbias = Σ_tokens dy. Only what is present is computed.
struct LinearBackward {
  Tensor dy{};                      // [tokens, out]
  Tensor x{};                       // [tokens, in]; needed for dweight
  Tensor weight{};                  // [out, in]; needed for dx
  Tensor dx{};                      // [tokens, in], optional
  Tensor dweight{};                 // [out, in], f32 or x's type, optional
  Tensor dbias{};                   // [out], optional
  bool accumulate_dx = false;       // add to dx
  bool accumulate_dweight = false;  // add to dweight and dbias
};
void linear_backward(const Context& ctx, const LinearBackward& args);

}  // namespace tigon::ops
