#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

void add_rmsnorm_forward(const Context& ctx, const ops::AddRmsnormForward& args) {
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < args.x.sizes[0]; ++i) {
    for (int64_t j = 0; j < args.x.sizes[1]; ++j)
      at(args.residual_out, i, j) = at(args.x, i, j) + at(args.residual, i, j);
  }
  rmsnorm_forward(ctx, {.x = args.residual_out,
                        .weight = args.weight,
                        .y = args.y,
                        .rstd = args.rstd,
                        .eps = args.eps,
                        .offset = args.offset,
                        .casting = args.casting});
}

void add_rmsnorm_backward(const Context& ctx, const ops::AddRmsnormBackward& args) {
  // dx may be dresidual_out, which the norm's gradient would overwrite before it is added.
  const OwnedTensor norm_dx(ctx, "norm_dx", DType::f64, {args.dy.sizes[0], args.dy.sizes[1]}, MemoryClass::workspace);
  rmsnorm_backward(ctx, {.dy = args.dy,
                         .x = args.residual_out,
                         .weight = args.weight,
                         .rstd = args.rstd,
                         .dx = norm_dx,
                         .dweight = args.dweight,
                         .offset = args.offset,
                         .casting = args.casting,
                         .accumulate_dweight = args.accumulate_dweight});
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < args.dx.sizes[0]; ++i) {
    for (int64_t j = 0; j < args.dx.sizes[1]; ++j) {
      at(args.dx, i, j) = at(norm_dx, i, j) + (args.dresidual_out ? at(args.dresidual_out, i, j) : 0.0);
    }
  }
}

}  // namespace tigon::reference
