#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/norm.cuh"

namespace tigon::cuda {

void add_rmsnorm_forward(const Context& ctx, const ops::AddRmsnormForward& args) {
  norm_forward(ctx, {.x = args.x,
                     .residual = args.residual,
                     .residual_out = args.residual_out,
                     .weight = args.weight,
                     .y = args.y,
                     .rstd = args.rstd,
                     .eps = args.eps,
                     .offset = args.offset,
                     .round_early = args.casting == ops::NormCasting::llama});
}

void add_rmsnorm_backward(const Context& ctx, const ops::AddRmsnormBackward& args) {
  norm_backward(ctx, {.dy = args.dy,
                      .dresidual = args.dresidual_out,
                      .x = args.residual_out,
                      .weight = args.weight,
                      .rstd = args.rstd,
                      .dx = args.dx,
                      .dweight = args.dweight,
                      .offset = args.offset,
                      .round_early = args.casting == ops::NormCasting::llama,
                      .accumulate = args.accumulate_dweight});
}

}  // namespace tigon::cuda
