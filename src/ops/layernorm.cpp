#include "tigon/ops/layernorm.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void layernorm_forward(const Context& ctx, const LayernormForward& args) {
  const Check check("layernorm_forward", ctx);
  check.tensor("x", args.x, {-1, -1}, "[tokens, hidden]");
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  check.floating("x", args.x);
  check.rows_contiguous("x", args.x);
  check.optional("weight", args.weight, {hidden}, "hidden of x");
  check.parameter("weight", args.weight, args.x);
  check.contiguous("weight", args.weight);
  check.optional("bias", args.bias, {hidden}, "hidden of x");
  check.parameter("bias", args.bias, args.x);
  check.contiguous("bias", args.bias);
  check.tensor("y", args.y, {tokens, hidden}, "as x");
  check.same_dtype("y", args.y, "x", args.x);
  check.writable("y", args.y);
  check.optional("mean", args.mean, {tokens}, "tokens of x");
  check.statistic("mean", args.mean, args.x);
  check.contiguous("mean", args.mean);
  check.optional("rstd", args.rstd, {tokens}, "tokens of x");
  check.statistic("rstd", args.rstd, args.x);
  check.contiguous("rstd", args.rstd);
  check.in_range("eps", args.eps, 0, 1);
  check.apart("y", args.y, "x", args.x, true);
  check.apart("y", args.y, "weight", args.weight);
  check.apart("y", args.y, "bias", args.bias);
  check.apart("mean", args.mean, "x", args.x);
  check.apart("mean", args.mean, "y", args.y);
  check.apart("mean", args.mean, "rstd", args.rstd);
  check.apart("rstd", args.rstd, "x", args.x);
  check.apart("rstd", args.rstd, "y", args.y);
  route(ctx, args, args.x.dtype, &Backend::layernorm_forward, "layernorm_forward");
}

void layernorm_backward(const Context& ctx, const LayernormBackward& args) {
  const Check check("layernorm_backward", ctx);
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
  check.tensor("mean", args.mean, {tokens}, "tokens of x");
  check.statistic("mean", args.mean, args.x);
  check.contiguous("mean", args.mean);
  check.tensor("rstd", args.rstd, {tokens}, "tokens of x");
  check.statistic("rstd", args.rstd, args.x);
  check.contiguous("rstd", args.rstd);
  check.optional("dx", args.dx, {tokens, hidden}, "as x");
  check.same_dtype("dx", args.dx, "x", args.x);
  check.writable("dx", args.dx);
  check.optional("dweight", args.dweight, {hidden}, "hidden of x");
  check.parameter("dweight", args.dweight, args.x);
  check.contiguous("dweight", args.dweight);
  check.optional("dbias", args.dbias, {hidden}, "hidden of x");
  check.parameter("dbias", args.dbias, args.x);
  check.contiguous("dbias", args.dbias);
  check.apart("dx", args.dx, "dy", args.dy, true);
  check.apart("dx", args.dx, "x", args.x, true);
  check.apart("dx", args.dx, "weight", args.weight);
  for (const auto& [name, gradient] : {std::pair{"dweight", &args.dweight}, {"dbias", &args.dbias}}) {
    check.apart(name, *gradient, "dx", args.dx);
    check.apart(name, *gradient, "x", args.x);
    check.apart(name, *gradient, "dy", args.dy);
    check.apart(name, *gradient, "weight", args.weight);
  }
  check.apart("dweight", args.dweight, "dbias", args.dbias);
  route(ctx, args, args.x.dtype, &Backend::layernorm_backward, "layernorm_backward");
}

}  // namespace tigon::ops
