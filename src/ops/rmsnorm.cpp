#include "tigon/ops/rmsnorm.hpp"

#include "ops/norm_check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void rmsnorm_forward(const Context& ctx, const RmsnormForward& args) {
  const NormCheck check("rmsnorm_forward", ctx, "x", args.x);
  check.hidden_parameter("weight", args.weight);
  check.output("y", args.y);
  check.optional_token_statistic("rstd", args.rstd);
  check.eps(args.eps);
  check.rms_options(args.offset, args.casting);
  check.apart("y", args.y, "x", args.x, true);
  check.apart_from_all("y", args.y, {{"weight", args.weight}});
  check.apart_from_all("rstd", args.rstd, {{"x", args.x}, {"y", args.y}, {"weight", args.weight}});
  route(ctx, args, args.x.dtype, &Backend::rmsnorm_forward, "rmsnorm_forward", {&args.y, &args.rstd});
}

void rmsnorm_backward(const Context& ctx, const RmsnormBackward& args) {
  const NormCheck check("rmsnorm_backward", ctx, "x", args.x);
  check.input("dy", args.dy);
  check.hidden_parameter("weight", args.weight);
  check.token_statistic("rstd", args.rstd);
  check.optional_output("dx", args.dx);
  check.hidden_parameter("dweight", args.dweight);
  check.rms_options(args.offset, args.casting);
  check.apart("dx", args.dx, "dy", args.dy, true);
  check.apart("dx", args.dx, "x", args.x, true);
  check.apart_from_all("dx", args.dx, {{"weight", args.weight}, {"rstd", args.rstd}});
  check.apart_from_all("dweight", args.dweight,
                       {{"dx", args.dx}, {"x", args.x}, {"dy", args.dy}, {"weight", args.weight}, {"rstd", args.rstd}});
  route(ctx, args, args.x.dtype, &Backend::rmsnorm_backward, "rmsnorm_backward", {&args.dx, &args.dweight});
}

}  // namespace tigon::ops
