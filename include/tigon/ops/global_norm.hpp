#pragma once

#include <span>

#include "tigon/core/context.hpp"

namespace tigon::ops {

// norm = sqrt(Σ over all tensors and elements of (scale·x)²), and the factor that clips to max_norm:
// clip = min(1, max_norm / (norm + 1e-6)), times scale. Summed in an order fixed by the shapes. Both results stay on
// the device, so nothing waits. A NaN or infinity anywhere shows in norm, and clip is then 0.
struct GlobalNorm {
  std::span<const Tensor> tensors{};  // floating types, contiguous, any shapes
  Tensor norm{};                      // [1] f32
  Tensor clip{};                      // [1] f32, optional
  double max_norm = 0.0;              // 0: clip is just scale
  double scale = 1.0;                 // for example 1/loss_scale
};
void global_norm(const Context& ctx, const GlobalNorm& args);

}  // namespace tigon::ops
