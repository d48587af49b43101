#pragma once

#include <span>

#include "tigon/core/context.hpp"

namespace tigon::ops {

inline constexpr int64_t kNormPiece = int64_t{1} << 16, kNormPieceOnGpu = int64_t{1} << 15;  // elements

// norm = sqrt(Σ over all tensors and elements of (scale·x)²), and the factor that clips to max_norm:
// clip = min(1, max_norm / (norm + 1e-6)), times scale. Summed in an order fixed by the shapes. Both results stay on
// the device, so nothing waits. A NaN or infinity anywhere shows in norm, and clip is then 0.
//
// Tensors that do not exist at the same time: each call without `norm` writes the sums of its tensors' pieces to its
// part of an array, and a last call without tensors takes the norm of the array. The bits are those of one call for all
// tensors in the array's order.
struct GlobalNorm {
  std::span<const Tensor> tensors{};  // floating types, contiguous, any shapes
  Tensor norm{};                      // [1] f32, optional with `pieces`
  Tensor clip{};                      // [1] f32, optional
  double max_norm = 0.0;              // 0: clip is just scale
  double scale = 1.0;                 // for example 1/loss_scale
  Tensor pieces{};                    // [pieces] f64, optional: written where there are tensors, else read
};
void global_norm(const Context& ctx, const GlobalNorm& args);

// How many sums a tensor of so many elements has. Devices cut differently.
int64_t norm_pieces(Device device, int64_t elements);

}  // namespace tigon::ops
