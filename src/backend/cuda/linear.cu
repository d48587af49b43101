// linear is three matrix products; only the bias gradient is left to do here.
#include "backend/cuda/column_sums.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/lib/gemm.hpp"

namespace tigon::cuda {

void linear_forward(const Context& ctx, const ops::LinearForward& args) {
  gemm(ctx, {.a = args.x,
             .b = args.weight,
             .c = args.y,
             .bias = args.bias,
             .b_transposed = true,
             .accumulate = args.accumulate_y});
}

void linear_backward(const Context& ctx, const ops::LinearBackward& args) {
  if (args.dx) gemm(ctx, {.a = args.dy, .b = args.weight, .c = args.dx, .accumulate = args.accumulate_dx});
  if (args.dweight) {
    gemm(ctx,
         {.a = args.dy, .b = args.x, .c = args.dweight, .a_transposed = true, .accumulate = args.accumulate_dweight});
  }
  if (args.dbias) column_sums(ctx, args.dy, args.dbias, args.accumulate_dweight);
}

}  // namespace tigon::cuda
