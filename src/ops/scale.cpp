#include "tigon/ops/scale.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void scale(const Context& ctx, const Scale& args) {
  const Check check("scale", ctx);
  check.any_shape("x", args.x);
  check.floating("x", args.x);
  check.contiguous("x", args.x);
  check.tensor("factor", args.factor, {1});
  check.statistic("factor", args.factor, args.x);
  check.apart("x", args.x, "factor", args.factor);
  route(ctx, args, args.x.dtype, &Backend::scale, "scale", {&args.x});
}

}  // namespace tigon::ops
