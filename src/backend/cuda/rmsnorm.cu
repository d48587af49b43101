#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/norm.cuh"

namespace tigon::cuda {

void rmsnorm_forward(const Context& ctx, const ops::RmsnormForward& args) {
  norm_forward(ctx, {.x = args.x,
                     .weight = args.weight,
                     .y = args.y,
                     .rstd = args.rstd,
                     .eps = args.eps,
                     .offset = args.offset,
                     .round_early = args.casting == ops::NormCasting::llama});
}

void rmsnorm_backward(const Context& ctx, const ops::RmsnormBackward& args) {
  norm_backward(ctx, {.dy = args.dy,
                      .x = args.x,
                      .weight = args.weight,
                      .rstd = args.rstd,
                      .dx = args.dx,
                      .dweight = args.dweight,
                      .offset = args.offset,
                      .round_early = args.casting == ops::NormCasting::llama,
                      .accumulate = args.accumulate_dweight});
}

}  // namespace tigon::cuda
