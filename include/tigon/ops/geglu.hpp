#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

enum class Gelu : int32_t { tanh = 0, erf = 1 };

// As swiglu with act = gelu: ½a(1 + tanh(√(2/π)(a + 0.044715a³))), or exactly ½a(1 + erf(a/√2)). Deterministic.
struct GegluForward {
  Tensor a{};  // [tokens, F] the gate
  Tensor b{};  // [tokens, F]
  Tensor c{};  // [tokens, F]; may be a or b
  Gelu gelu = Gelu::tanh;
};
void geglu_forward(const Context& ctx, const GegluForward& args);

struct GegluBackward {
  Tensor dc{};  // [tokens, F]
  Tensor a{};   // [tokens, F]
  Tensor b{};   // [tokens, F]
  Tensor da{};  // [tokens, F]; may be a
  Tensor db{};  // [tokens, F]; may be b
  Tensor c{};   // [tokens, F], optional: receives act(a)·b again; may be dc
  Gelu gelu = Gelu::tanh;
};
void geglu_backward(const Context& ctx, const GegluBackward& args);

}  // namespace tigon::ops
