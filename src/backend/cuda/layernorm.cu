#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/norm.cuh"

namespace tigon::cuda {

void layernorm_forward(const Context& ctx, const ops::LayernormForward& args) {
  norm_forward(ctx, {.layer = true,
                     .x = args.x,
                     .weight = args.weight,
                     .bias = args.bias,
                     .y = args.y,
                     .mean = args.mean,
                     .rstd = args.rstd,
                     .eps = args.eps});
}

void layernorm_backward(const Context& ctx, const ops::LayernormBackward& args) {
  norm_backward(ctx, {.layer = true,
                      .dy = args.dy,
                      .x = args.x,
                      .weight = args.weight,
                      .mean = args.mean,
                      .rstd = args.rstd,
                      .dx = args.dx,
                      .dweight = args.dweight,
                      .dbias = args.dbias,
                      .accumulate = args.accumulate_dweight});
}

}  // namespace tigon::cuda
