#include "tigon/ops/geglu.hpp"

#include "ops/gated.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void geglu_forward(const Context& ctx, const GegluForward& args) {
  const Check check("geglu_forward", ctx);
  check_gated_forward(check, args);
  check.known("gelu", args.gelu, Gelu::erf);
  route(ctx, args, args.a.dtype, &Backend::geglu_forward, "geglu_forward", {&args.c});
}

void geglu_backward(const Context& ctx, const GegluBackward& args) {
  const Check check("geglu_backward", ctx);
  check_gated_backward(check, args);
  check.known("gelu", args.gelu, Gelu::erf);
  route(ctx, args, args.a.dtype, &Backend::geglu_backward, "geglu_backward", {&args.da, &args.db, &args.c});
}

}  // namespace tigon::ops
