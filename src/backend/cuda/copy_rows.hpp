#pragma once

#include "tigon/core/context.hpp"

namespace tigon::cuda {

// The rows of a matrix at another pitch, bit by bit: to[i, j] = from[i, j], and 0 where `from` has no such column. Both
// are 16-bit or both 32-bit, with as many rows; rows may begin anywhere.
void copy_rows(const Context& ctx, const Tensor& from, const Tensor& to);

}  // namespace tigon::cuda
