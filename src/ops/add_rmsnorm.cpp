#include "tigon/ops/add_rmsnorm.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void add_rmsnorm_forward(const Context& ctx, const AddRmsnormForward& args) {
  const Check check("add_rmsnorm_forward", ctx);
  check.tensor("x", args.x, {-1, -1}, "[tokens, hidden]");
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  check.floating("x", args.x);
  check.rows_contiguous("x", args.x);
  check.tensor("residual", args.residual, {tokens, hidden}, "as x");
  check.same_dtype("residual", args.residual, "x", args.x);
  check.rows_contiguous("residual", args.residual);
  check.optional("weight", args.weight, {hidden}, "hidden of x");
  check.parameter("weight", args.weight, args.x);
  check.contiguous("weight", args.weight);
  check.tensor("residual_out", args.residual_out, {tokens, hidden}, "as x");
  check.same_dtype("residual_out", args.residual_out, "x", args.x);
  check.writable("residual_out", args.residual_out);
  check.tensor("y", args.y, {tokens, hidden}, "as x");
  check.same_dtype("y", args.y, "x", args.x);
  check.writable("y", args.y);
  check.optional("rstd", args.rstd, {tokens}, "tokens of x");
  check.statistic("rstd", args.rstd, args.x);
  check.contiguous("rstd", args.rstd);
  check.in_range("eps", args.eps, 0, 1);
  check.finite("offset", args.offset);
  check.known("casting", args.casting, NormCasting::none);
  check.apart("residual_out", args.residual_out, "x", args.x, true);
  check.apart("residual_out", args.residual_out, "residual", args.residual, true);
  check.apart("residual_out", args.residual_out, "weight", args.weight);
  check.apart("y", args.y, "x", args.x, true);
  check.apart("y", args.y, "residual", args.residual);
  check.apart("y", args.y, "residual_out", args.residual_out);
  check.apart("y", args.y, "weight", args.weight);
  check.apart("rstd", args.rstd, "x", args.x);
  check.apart("rstd", args.rstd, "residual", args.residual);
  check.apart("rstd", args.rstd, "residual_out", args.residual_out);
  check.apart("rstd", args.rstd, "y", args.y);
  check.apart("rstd", args.rstd, "weight", args.weight);
  route(ctx, args, args.x.dtype, &Backend::add_rmsnorm_forward, "add_rmsnorm_forward");
}

void add_rmsnorm_backward(const Context& ctx, const AddRmsnormBackward& args) {
  const Check check("add_rmsnorm_backward", ctx);
  check.tensor("residual_out", args.residual_out, {-1, -1}, "[tokens, hidden]");
  const int64_t tokens = args.residual_out.sizes[0], hidden = args.residual_out.sizes[1];
  check.floating("residual_out", args.residual_out);
  check.rows_contiguous("residual_out", args.residual_out);
  check.tensor("dy", args.dy, {tokens, hidden}, "as residual_out");
  check.same_dtype("dy", args.dy, "residual_out", args.residual_out);
  check.rows_contiguous("dy", args.dy);
  check.optional("dresidual_out", args.dresidual_out, {tokens, hidden}, "as residual_out");
  check.same_dtype("dresidual_out", args.dresidual_out, "residual_out", args.residual_out);
  check.rows_contiguous("dresidual_out", args.dresidual_out);
  check.optional("weight", args.weight, {hidden}, "hidden of residual_out");
  check.parameter("weight", args.weight, args.residual_out);
  check.contiguous("weight", args.weight);
  check.tensor("rstd", args.rstd, {tokens}, "tokens of residual_out");
  check.statistic("rstd", args.rstd, args.residual_out);
  check.contiguous("rstd", args.rstd);
  check.tensor("dx", args.dx, {tokens, hidden}, "as residual_out");
  check.same_dtype("dx", args.dx, "residual_out", args.residual_out);
  check.writable("dx", args.dx);
  check.optional("dweight", args.dweight, {hidden}, "hidden of residual_out");
  check.parameter("dweight", args.dweight, args.residual_out);
  check.contiguous("dweight", args.dweight);
  check.finite("offset", args.offset);
  check.known("casting", args.casting, NormCasting::none);
  check.apart("dx", args.dx, "dy", args.dy, true);
  check.apart("dx", args.dx, "dresidual_out", args.dresidual_out, true);
  check.apart("dx", args.dx, "residual_out", args.residual_out);
  check.apart("dx", args.dx, "weight", args.weight);
  check.apart("dx", args.dx, "rstd", args.rstd);
  check.apart("dweight", args.dweight, "dx", args.dx);
  check.apart("dweight", args.dweight, "residual_out", args.residual_out);
  check.apart("dweight", args.dweight, "dresidual_out", args.dresidual_out);
  check.apart("dweight", args.dweight, "dy", args.dy);
  check.apart("dweight", args.dweight, "weight", args.weight);
  check.apart("dweight", args.dweight, "rstd", args.rstd);
  route(ctx, args, args.residual_out.dtype, &Backend::add_rmsnorm_backward, "add_rmsnorm_backward");
}

}  // namespace tigon::ops
