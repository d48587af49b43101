#pragma once

#include "tigon/core/context.hpp"

namespace tigon::cuda {

// out[j] = Σ_i x[i, j] (+ out[j] with accumulate), in f32 and in an order given by the shape; out is f32 or 16-bit.
void column_sums(const Context& ctx, const Tensor& x, const Tensor& out, bool accumulate);

}  // namespace tigon::cuda
