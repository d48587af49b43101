#include "tigon/ops/swiglu.hpp"

#include "ops/gated.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void swiglu_forward(const Context& ctx, const SwigluForward& args) {
  check_gated_forward(Check("swiglu_forward", ctx), args);
  route(ctx, args, args.a.dtype, &Backend::swiglu_forward, "swiglu_forward", {&args.c});
}

void swiglu_backward(const Context& ctx, const SwigluBackward& args) {
  check_gated_backward(Check("swiglu_backward", ctx), args);
  route(ctx, args, args.a.dtype, &Backend::swiglu_backward, "swiglu_backward", {&args.da, &args.db, &args.c});
}

}  // namespace tigon::ops
