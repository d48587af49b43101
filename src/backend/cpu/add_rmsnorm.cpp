#include "backend/cpu/rmsnorm.hpp"

namespace tigon::cpu {

void add_rmsnorm_forward(const Context& ctx, const ops::AddRmsnormForward& args) {
  rmsnorm_forward_of_sum(ctx,
                         {.x = args.x,
                          .weight = args.weight,
                          .y = args.y,
                          .rstd = args.rstd,
                          .eps = args.eps,
                          .offset = args.offset,
                          .casting = args.casting},
                         args.residual, args.residual_out);
}

void add_rmsnorm_backward(const Context& ctx, const ops::AddRmsnormBackward& args) {
  rmsnorm_backward_onto(ctx,
                        {.dy = args.dy,
                         .x = args.residual_out,
                         .weight = args.weight,
                         .rstd = args.rstd,
                         .dx = args.dx,
                         .dweight = args.dweight,
                         .offset = args.offset,
                         .casting = args.casting,
                         .accumulate_dweight = args.accumulate_dweight},
                        args.dresidual_out);
}

}  // namespace tigon::cpu
