#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// A gated activation c = act(a)·b with act = silu: a / (1 + e^−a). Deterministic. The activation is rounded to the
// storage type before the product, as eager frameworks do. A packed [tokens, 2F] buffer is two views of it: a =
// packed.slice(1, 0, F), b = packed.slice(1, F, 2F).
struct SwigluForward {
  Tensor a{};  // [tokens, F] the gate
  Tensor b{};  // [tokens, F]
  Tensor c{};  // [tokens, F]; may be a or b
};
void swiglu_forward(const Context& ctx, const SwigluForward& args);

// da = dc·b·act'(a), db = dc·act(a); the activation is recomputed, nothing was saved. da may be a, db may be b and c
// may be dc, when the caller no longer needs them: nothing is overwritten otherwise.
struct SwigluBackward {
  Tensor dc{};  // [tokens, F]
  Tensor a{};   // [tokens, F]
  Tensor b{};   // [tokens, F]
  Tensor da{};  // [tokens, F]
  Tensor db{};  // [tokens, F]
  Tensor c{};   // [tokens, F], optional: receives act(a)·b again, for a caller that did not keep it; may be dc
};
void swiglu_backward(const Context& ctx, const SwigluBackward& args);

}  // namespace tigon::ops
