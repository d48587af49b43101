#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

// The sum as an op of its own, then the norm's chain.
void add_rmsnorm_forward(const Context& ctx, const AddRmsnormForward& args, Tape& tape) {
  const Chain chain(ctx);
  chain.zip_to(BinaryOp::add, args.x, args.residual, args.residual_out);
  rmsnorm_forward(ctx,
                  {.x = args.residual_out,
                   .weight = args.weight,
                   .y = args.y,
                   .rstd = args.rstd,
                   .eps = args.eps,
                   .offset = args.offset,
                   .casting = args.casting},
                  tape);
}

void add_rmsnorm_backward(const Context& ctx, const AddRmsnormBackward& args, Tape& tape) {
  const Chain chain(ctx);
  const OwnedTensor norm_dx = chain.like("norm_dx", args.dx, args.dx.dtype);
  rmsnorm_backward(ctx,
                   {.dy = args.dy,
                    .x = args.residual_out,
                    .weight = args.weight,
                    .rstd = args.rstd,
                    .dx = norm_dx,
                    .dweight = args.dweight,
                    .offset = args.offset,
                    .casting = args.casting,
                    .accumulate_dweight = args.accumulate_dweight},
                   tape);
  if (args.dresidual_out) {
    chain.zip_to(BinaryOp::add, norm_dx, args.dresidual_out, args.dx);
  } else {
    chain.copy_to(norm_dx, args.dx);
  }
}

}  // namespace tigon::ops::unfused
