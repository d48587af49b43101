#pragma once

#include "tigon/core/context.hpp"

namespace tigon::cpu {

// sums[j] = (accumulate ? sums[j] : 0) + Σ_i x[i, j]: the gradient of a bias. Added up in f32 or better and rounded
// once to the type of `sums`, in an order fixed by the shape.
void column_sums(const Context& ctx, const Tensor& x, const Tensor& sums, bool accumulate);

}  // namespace tigon::cpu
