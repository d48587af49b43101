#include "tigon/ops/add_rmsnorm.hpp"

#include "ops/norm_check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void add_rmsnorm_forward(const Context& ctx, const AddRmsnormForward& args) {
  const NormCheck check("add_rmsnorm_forward", ctx, "x", args.x);
  check.input("residual", args.residual);
  check.hidden_parameter("weight", args.weight);
  check.output("residual_out", args.residual_out);
  check.output("y", args.y);
  check.optional_token_statistic("rstd", args.rstd);
  check.eps(args.eps);
  check.rms_options(args.offset, args.casting);
  check.apart("residual_out", args.residual_out, "x", args.x, true);
  check.apart("residual_out", args.residual_out, "residual", args.residual, true);
  check.apart_from_all("residual_out", args.residual_out, {{"weight", args.weight}});
  check.apart("y", args.y, "x", args.x, true);
  check.apart_from_all("y", args.y,
                       {{"residual", args.residual}, {"residual_out", args.residual_out}, {"weight", args.weight}});
  check.apart_from_all("rstd", args.rstd,
                       {{"x", args.x},
                        {"residual", args.residual},
                        {"residual_out", args.residual_out},
                        {"y", args.y},
                        {"weight", args.weight}});
  route(ctx, args, args.x.dtype, &Backend::add_rmsnorm_forward, "add_rmsnorm_forward",
        {&args.residual_out, &args.y, &args.rstd});
}

void add_rmsnorm_backward(const Context& ctx, const AddRmsnormBackward& args) {
  const NormCheck check("add_rmsnorm_backward", ctx, "residual_out", args.residual_out);
  check.input("dy", args.dy);
  check.optional_input("dresidual_out", args.dresidual_out);
  check.hidden_parameter("weight", args.weight);
  check.token_statistic("rstd", args.rstd);
  check.output("dx", args.dx);
  check.hidden_parameter("dweight", args.dweight);
  check.rms_options(args.offset, args.casting);
  check.apart("dx", args.dx, "dy", args.dy, true);
  check.apart("dx", args.dx, "dresidual_out", args.dresidual_out, true);
  check.apart_from_all("dx", args.dx,
                       {{"residual_out", args.residual_out}, {"weight", args.weight}, {"rstd", args.rstd}});
  check.apart_from_all("dweight", args.dweight,
                       {{"dx", args.dx},
                        {"residual_out", args.residual_out},
                        {"dresidual_out", args.dresidual_out},
                        {"dy", args.dy},
                        {"weight", args.weight},
                        {"rstd", args.rstd}});
  route(ctx, args, args.residual_out.dtype, &Backend::add_rmsnorm_backward, "add_rmsnorm_backward",
        {&args.dx, &args.dweight});
}

}  // namespace tigon::ops
