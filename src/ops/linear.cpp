#include "tigon/ops/linear.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void linear_forward(const Context& ctx, const LinearForward& args) {
  const Check check("linear_forward", ctx);
  check.tensor("x", args.x, {-1, -1}, "[tokens, in]");
  const int64_t tokens = args.x.sizes[0], in = args.x.sizes[1];
  check.floating("x", args.x);
  check.rows_contiguous("x", args.x);
  check.tensor("weight", args.weight, {-1, in}, "[out, in of x]");
  const int64_t out = args.weight.sizes[0];
  check.parameter("weight", args.weight, args.x);
  check.rows_contiguous("weight", args.weight);
  check.optional("bias", args.bias, {out}, "out of weight");
  check.parameter("bias", args.bias, args.x);
  check.contiguous("bias", args.bias);
  if (args.accumulate_y && args.bias) check.fail("a bias is not added to what y has already: give it with the first product");
  check.tensor("y", args.y, {tokens, out}, "[tokens of x, out of weight]");
  check.parameter("y", args.y, args.x);
  check.writable("y", args.y);
  check.apart("y", args.y, "x", args.x);
  check.apart("y", args.y, "weight", args.weight);
  check.apart("y", args.y, "bias", args.bias);
  route(ctx, args, args.x.dtype, &Backend::linear_forward, "linear_forward", {&args.y});
}

void linear_backward(const Context& ctx, const LinearBackward& args) {
  const Check check("linear_backward", ctx);
  check.tensor("dy", args.dy, {-1, -1}, "[tokens, out]");
  const int64_t tokens = args.dy.sizes[0], out = args.dy.sizes[1];
  check.floating("dy", args.dy);
  check.rows_contiguous("dy", args.dy);
  if (args.dx) {
    check.tensor("weight", args.weight, {out, -1}, "[out of dy, in], needed for dx");
    check.floating("weight", args.weight);
    check.rows_contiguous("weight", args.weight);
    check.tensor("dx", args.dx, {tokens, args.weight.sizes[1]}, "[tokens of dy, in of weight]");
    check.floating("dx", args.dx);
    check.writable("dx", args.dx);
    check.apart("dx", args.dx, "dy", args.dy);
    check.apart("dx", args.dx, "weight", args.weight);
  }
  if (args.dweight) {
    check.tensor("x", args.x, {tokens, -1}, "[tokens of dy, in], needed for dweight");
    check.floating("x", args.x);
    check.rows_contiguous("x", args.x);
    check.tensor("dweight", args.dweight, {out, args.x.sizes[1]}, "[out of dy, in of x]");
    check.parameter("dweight", args.dweight, args.x);
    check.writable("dweight", args.dweight);
    check.apart("dweight", args.dweight, "dy", args.dy);
    check.apart("dweight", args.dweight, "x", args.x);
    check.apart("dweight", args.dweight, "dx", args.dx);
    if (args.dx) check.apart("dweight", args.dweight, "weight", args.weight);
    check.apart("dx", args.dx, "x", args.x);
  }
  check.optional("dbias", args.dbias, {out}, "out of dy");
  check.floating("dbias", args.dbias);
  check.contiguous("dbias", args.dbias);
  check.apart("dbias", args.dbias, "dy", args.dy);
  check.apart("dbias", args.dbias, "dx", args.dx);
  check.apart("dbias", args.dbias, "dweight", args.dweight);
  if (args.dx) check.apart("dbias", args.dbias, "weight", args.weight);
  if (args.dweight) check.apart("dbias", args.dbias, "x", args.x);
  const bool wide = args.dy.dtype == DType::f64;
  for (const Tensor* t : {&args.weight, &args.x, &args.dx, &args.dweight, &args.dbias}) {
    if (t->present() && (t->dtype == DType::f64) != wide) check.fail("f64 does not mix with other types");
  }
  route(ctx, args, args.dy.dtype, &Backend::linear_backward, "linear_backward", {&args.dx, &args.dweight, &args.dbias});
}

}  // namespace tigon::ops
