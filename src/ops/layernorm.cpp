#include "tigon/ops/layernorm.hpp"

#include <utility>

#include "ops/norm_check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void layernorm_forward(const Context& ctx, const LayernormForward& args) {
  const NormCheck check("layernorm_forward", ctx, "x", args.x);
  check.hidden_parameter("weight", args.weight);
  check.hidden_parameter("bias", args.bias);
  check.output("y", args.y);
  check.optional_token_statistic("mean", args.mean);
  check.optional_token_statistic("rstd", args.rstd);
  check.eps(args.eps);
  check.apart("y", args.y, "x", args.x, true);
  check.apart_from_all("y", args.y, {{"weight", args.weight}, {"bias", args.bias}});
  for (const auto& [name, statistic] : {std::pair{"mean", &args.mean}, {"rstd", &args.rstd}}) {
    check.apart_from_all(name, *statistic,
                         {{"x", args.x}, {"y", args.y}, {"weight", args.weight}, {"bias", args.bias}});
  }
  check.apart("mean", args.mean, "rstd", args.rstd);
  route(ctx, args, args.x.dtype, &Backend::layernorm_forward, "layernorm_forward", {&args.y, &args.mean, &args.rstd});
}

void layernorm_backward(const Context& ctx, const LayernormBackward& args) {
  const NormCheck check("layernorm_backward", ctx, "x", args.x);
  check.input("dy", args.dy);
  check.hidden_parameter("weight", args.weight);
  check.token_statistic("mean", args.mean);
  check.token_statistic("rstd", args.rstd);
  check.optional_output("dx", args.dx);
  check.hidden_parameter("dweight", args.dweight);
  check.hidden_parameter("dbias", args.dbias);
  check.apart("dx", args.dx, "dy", args.dy, true);
  check.apart("dx", args.dx, "x", args.x, true);
  check.apart_from_all("dx", args.dx, {{"weight", args.weight}, {"mean", args.mean}, {"rstd", args.rstd}});
  for (const auto& [name, gradient] : {std::pair{"dweight", &args.dweight}, {"dbias", &args.dbias}}) {
    check.apart_from_all(name, *gradient,
                         {{"dx", args.dx},
                          {"x", args.x},
                          {"dy", args.dy},
                          {"weight", args.weight},
                          {"mean", args.mean},
                          {"rstd", args.rstd}});
  }
  check.apart("dweight", args.dweight, "dbias", args.dbias);
  route(ctx, args, args.x.dtype, &Backend::layernorm_backward, "layernorm_backward",
        {&args.dx, &args.dweight, &args.dbias});
}

}  // namespace tigon::ops
