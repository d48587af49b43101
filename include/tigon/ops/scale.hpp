#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// x ← factor·x in place, rounded once. The factor is read where x is, so nothing waits for it; a factor of exactly 1
// leaves x as it is, without reading it: what a gradient that was formed early meets most of the time.
struct Scale {
  Tensor x{};       // any shape, contiguous
  Tensor factor{};  // [1] f32
};
void scale(const Context& ctx, const Scale& args);

}  // namespace tigon::ops
