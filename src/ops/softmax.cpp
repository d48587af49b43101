#include "tigon/ops/softmax.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void softmax_forward(const Context& ctx, const SoftmaxForward& args) {
  const Check check("softmax_forward", ctx);
  check.tensor("x", args.x, {-1, -1}, "[rows, columns]");
  check.floating("x", args.x);
  check.rows_contiguous("x", args.x);
  check.tensor("y", args.y, {args.x.sizes[0], args.x.sizes[1]}, "as x");
  check.same_dtype("y", args.y, "x", args.x);
  check.writable("y", args.y);
  check.finite("scale", args.scale);
  check.apart("y", args.y, "x", args.x, true);
  route(ctx, args, args.x.dtype, &Backend::softmax_forward, "softmax_forward", {&args.y});
}

void softmax_backward(const Context& ctx, const SoftmaxBackward& args) {
  const Check check("softmax_backward", ctx);
  check.tensor("y", args.y, {-1, -1}, "[rows, columns]");
  check.floating("y", args.y);
  check.rows_contiguous("y", args.y);
  check.tensor("dy", args.dy, {args.y.sizes[0], args.y.sizes[1]}, "as y");
  check.same_dtype("dy", args.dy, "y", args.y);
  check.rows_contiguous("dy", args.dy);
  check.tensor("dx", args.dx, {args.y.sizes[0], args.y.sizes[1]}, "as y");
  check.same_dtype("dx", args.dx, "y", args.y);
  check.writable("dx", args.dx);
  check.finite("scale", args.scale);
  check.apart("dx", args.dx, "dy", args.dy, true);
  check.apart("dx", args.dx, "y", args.y, true);
  route(ctx, args, args.y.dtype, &Backend::softmax_backward, "softmax_backward", {&args.dx});
}

}  // namespace tigon::ops
