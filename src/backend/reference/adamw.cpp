#include <cmath>

#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

// f64 needs no rounding, so args.rounding has nothing to say here.
void adamw(const Context& ctx, const ops::Adamw& args) {
  if (ctx.measuring()) return;
  const double scale = args.grad_scale ? at(args.grad_scale, 0) : 1.0;
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1.0 - std::pow(args.beta1, step), correction2 = 1.0 - std::pow(args.beta2, step);
  for (int64_t e = 0; e < args.param.sizes[0]; ++e) {
    const double g = at(args.grad, e) * scale;
    double& m = at(args.m, e);
    double& v = at(args.v, e);
    double& param = at(args.param, e);
    m = args.beta1 * m + (1 - args.beta1) * g;
    v = args.beta2 * v + (1 - args.beta2) * g * g;
    const double update = m / correction1 / (std::sqrt(v / correction2) + args.eps);
    param -= args.lr * (update + args.weight_decay * param);
    if (args.param_copy) at(args.param_copy, e) = param;
  }
}

}  // namespace tigon::reference
