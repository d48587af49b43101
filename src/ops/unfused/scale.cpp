#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

// torch's mul_ by a tensor of one element.
void scale(const Context& ctx, const Scale& args) {
  const Tensor flat = args.x.reshape({args.x.elements()});
  Tensor factor = args.factor;
  factor.sizes[0] = flat.sizes[0];
  factor.strides[0] = 0;
  binary(ctx, {.op = BinaryOp::mul, .a = flat, .b = factor, .y = flat});
}

}  // namespace tigon::ops::unfused
