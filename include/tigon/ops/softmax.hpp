#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// y = softmax(scale·x) over each row, with the row's maximum subtracted first. y may be x. Deterministic; on a GPU a
// row's last bits may depend on where it begins within 16 bytes, here and in backward.
struct SoftmaxForward {
  Tensor x{};  // [rows, columns]
  Tensor y{};  // [rows, columns]
  double scale = 1.0;
};
void softmax_forward(const Context& ctx, const SoftmaxForward& args);

// dx = scale·y·(dy − Σ_j dy_j·y_j). dx may be dy. Deterministic.
struct SoftmaxBackward {
  Tensor dy{};  // [rows, columns]
  Tensor y{};   // [rows, columns], from forward
  Tensor dx{};  // [rows, columns]
  double scale = 1.0;
};
void softmax_backward(const Context& ctx, const SoftmaxBackward& args);

}  // namespace tigon::ops
