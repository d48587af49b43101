#include "tigon/ops/rmsnorm.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void rmsnorm_forward(const Context& ctx, const RmsnormForward& args) {
  const Check check("rmsnorm_forward", ctx);
  check.tensor("x", args.x, {-1, -1}, "[tokens, hidden]");
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  check.floating("x", args.x);
  check.rows_contiguous("x", args.x);
  check.optional("weight", args.weight, {hidden}, "hidden of x");
  check.parameter("weight", args.weight, args.x);
  check.contiguous("weight", args.weight);
  check.tensor("y", args.y, {tokens, hidden}, "as x");
  check.same_dtype("y", args.y, "x", args.x);
  check.writable("y", args.y);
  check.optional("rstd", args.rstd, {tokens}, "tokens of x");
  check.statistic("rstd", args.rstd, args.x);
  check.contiguous("rstd", args.rstd);
  check.in_range("eps", args.eps, 0, 1);
  check.finite("offset", args.offset);
  check.known("casting", args.casting, NormCasting::none);
  check.apart("y", args.y, "x", args.x, true);
  check.apart("y", args.y, "weight", args.weight);
  check.apart("rstd", args.rstd, "x", args.x);
  check.apart("rstd", args.rstd, "y", args.y);
  route(ctx, args, args.x.dtype, &Backend::rmsnorm_forward, "rmsnorm_forward");
}

void rmsnorm_backward(const Context& ctx, const RmsnormBackward& args) {
  const Check check("rmsnorm_backward", ctx);
  check.tensor("x", args.x, {-1, -1}, "[tokens, hidden]");
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  check.floating("x", args.x);
  check.rows_contiguous("x", args.x);
  check.tensor("dy", args.dy, {tokens, hidden}, "as x");
  check.same_dtype("dy", args.dy, "x", args.x);
  check.rows_contiguous("dy", args.dy);
  check.optional("weight", args.weight, {hidden}, "hidden of x");
  check.parameter("weight", args.weight, args.x);
  check.contiguous("weight", args.weight);
  check.tensor("rstd", args.rstd, {tokens}, "tokens of x");
  check.statistic("rstd", args.rstd, args.x);
  check.contiguous("rstd", args.rstd);
  check.optional("dx", args.dx, {tokens, hidden}, "as x");
  check.same_dtype("dx", args.dx, "x", args.x);
  check.writable("dx", args.dx);
  check.optional("dweight", args.dweight, {hidden}, "hidden of x");
  check.parameter("dweight", args.dweight, args.x);
  check.contiguous("dweight", args.dweight);
  check.finite("offset", args.offset);
  check.known("casting", args.casting, NormCasting::none);
  check.apart("dx", args.dx, "dy", args.dy, true);
  check.apart("dx", args.dx, "x", args.x, true);
  check.apart("dweight", args.dweight, "dx", args.dx);
  check.apart("dweight", args.dweight, "x", args.x);
  check.apart("dweight", args.dweight, "dy", args.dy);
  check.apart("dweight", args.dweight, "weight", args.weight);
  route(ctx, args, args.x.dtype, &Backend::rmsnorm_backward, "rmsnorm_backward");
}

}  // namespace tigon::ops
