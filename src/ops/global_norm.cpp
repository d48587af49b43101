#include "tigon/ops/global_norm.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void global_norm(const Context& ctx, const GlobalNorm& args) {
  const Check check("global_norm", ctx);
  check.tensor("norm", args.norm, {1});
  check.floating("norm", args.norm);
  check.statistic("norm", args.norm, args.norm);
  check.optional("clip", args.clip, {1});
  check.same_dtype("clip", args.clip, "norm", args.norm);
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    const Tensor& t = args.tensors[i];
    const std::string name = "tensors[" + std::to_string(i) + "]";
    check.any_shape(name.c_str(), t);
    check.floating(name.c_str(), t);
    check.contiguous(name.c_str(), t);
    check.statistic("norm", args.norm, t);
    check.apart("norm", args.norm, name.c_str(), t);
    check.apart("clip", args.clip, name.c_str(), t);
  }
  check.apart("clip", args.clip, "norm", args.norm);
  check.finite("max_norm", args.max_norm);
  if (args.max_norm < 0) check.fail("'max_norm' is negative", "0 (no clipping) or more");
  check.finite("scale", args.scale);
  route(ctx, args, args.norm.dtype, &Backend::global_norm, "global_norm", {&args.norm, &args.clip});
}

}  // namespace tigon::ops
