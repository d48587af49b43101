#include "tigon/ops/low_rank.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void normal(const Context& ctx, const Normal& args) {
  const Check check("normal", ctx);
  check.any_shape("y", args.y);
  check.floating("y", args.y);
  check.contiguous("y", args.y);
  check.finite("deviation", args.deviation);
  if (args.first_element < 0) check.fail("'first_element' is negative");
  route(ctx, args, args.y.dtype, &Backend::normal, "normal", {&args.y});
}

void apollo_factors(const Context& ctx, const ApolloFactors& args) {
  const Check check("apollo_factors", ctx);
  check.tensor("grad", args.grad, {-1, -1}, "[rows, columns]");
  check.floating("grad", args.grad);
  check.contiguous("grad", args.grad);
  const int64_t channels = args.grad.sizes[args.columns ? 1 : 0];
  check.tensor("projected", args.projected, {channels, -1}, "[channels of grad, rank]");
  check.tensor("direction", args.direction, {channels, args.projected.sizes[1]}, "as projected");
  check.tensor("last", args.last, {1});
  check.optional("grad_scale", args.grad_scale, {1});
  check.tensor("factors", args.factors, {channels}, "channels of grad");
  const std::pair<const char*, const Tensor*> statistics[] = {{"projected", &args.projected},
                                                              {"direction", &args.direction},
                                                              {"grad_scale", &args.grad_scale},
                                                              {"last", &args.last},
                                                              {"factors", &args.factors}};
  for (const auto& [name, t] : statistics) {
    check.statistic(name, *t, args.grad);
    check.contiguous(name, *t);
    for (const auto& [written, out] : {std::pair{"last", &args.last}, {"factors", &args.factors}}) {
      if (out != t) check.apart(written, *out, name, *t);
    }
  }
  check.apart("last", args.last, "grad", args.grad);
  check.apart("factors", args.factors, "grad", args.grad);
  check.finite("gain", args.gain);
  check.in_range("growth", args.growth, 1, 1e9);
  route(ctx, args, args.grad.dtype, &Backend::apollo_factors, "apollo_factors", {&args.factors});
}

void orthonormalize(const Context& ctx, const Orthonormalize& args) {
  const Check check("orthonormalize", ctx);
  check.tensor("rows", args.rows, {-1, -1}, "[rank, n]");
  check.statistic("rows", args.rows, args.rows);
  check.contiguous("rows", args.rows);
  if (args.rows.sizes[0] > args.rows.sizes[1])
    check.fail("there are more 'rows' than directions", "at most " + std::to_string(args.rows.sizes[1]),
               std::to_string(args.rows.sizes[0]));
  route(ctx, args, args.rows.dtype, &Backend::orthonormalize, "orthonormalize", {&args.rows});
}

void scaled_update(const Context& ctx, const ScaledUpdate& args) {
  const Check check("scaled_update", ctx);
  check.tensor("param", args.param, {-1, -1}, "[rows, columns]");
  const int64_t rows = args.param.sizes[0], columns = args.param.sizes[1];
  check.tensor("grad", args.grad, {rows, columns}, "as param");
  check.optional("param_copy", args.param_copy, {rows, columns}, "as param");
  check.optional("factors", args.factors, {args.columns ? columns : rows}, "one per row, or per column with columns");
  check.statistic("factors", args.factors, args.param);
  check.contiguous("factors", args.factors);
  const std::pair<const char*, const Tensor*> matrices[] = {
      {"param", &args.param}, {"grad", &args.grad}, {"param_copy", &args.param_copy}};
  for (const auto& [name, t] : matrices) {
    check.floating(name, *t);
    check.contiguous(name, *t);
    if (t->present() && (t->dtype == DType::f64) != (args.param.dtype == DType::f64))
      check.fail("f64 does not mix with other types");
  }
  check.apart("param", args.param, "grad", args.grad);
  check.apart("param_copy", args.param_copy, "param", args.param);
  check.apart("param_copy", args.param_copy, "grad", args.grad);
  check.apart("param", args.param, "factors", args.factors);
  check.apart("param_copy", args.param_copy, "factors", args.factors);
  check.finite("lr", args.lr);
  check.finite("decay", args.decay);
  check.known("rounding", args.rounding, Rounding::stochastic);
  if (args.step < 1) check.fail("'step' is out of range", "1 or more", std::to_string(args.step));
  if (args.first_element < 0) check.fail("'first_element' is negative");
  route(ctx, args, args.param.dtype, &Backend::scaled_update, "scaled_update", {&args.param});
}

}  // namespace tigon::ops
