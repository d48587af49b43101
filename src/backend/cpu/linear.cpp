// linear is three matrix products; only the bias gradient is left to do here.
#include "backend/cpu/column_sums.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/gemm.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::cpu {

namespace {

void gradients(const Context& ctx, const ops::LinearBackward& args) {
  if (args.dx) gemm(ctx, {.a = args.dy, .b = args.weight, .c = args.dx, .accumulate = args.accumulate_dx});
  if (args.dweight) {
    gemm(ctx,
         {.a = args.dy, .b = args.x, .c = args.dweight, .a_transposed = true, .accumulate = args.accumulate_dweight});
  }
  if (args.dbias) column_sums(ctx, args.dy, args.dbias, args.accumulate_dweight);
}

}  // namespace

void linear_forward(const Context& ctx, const ops::LinearForward& args) {
  gemm(ctx, {.a = args.x,
             .b = args.weight,
             .c = args.y,
             .bias = args.bias,
             .b_transposed = true,
             .accumulate = args.accumulate_y});
}

void linear_backward(const Context& ctx, const ops::LinearBackward& args) {
  // All scratch before the first product: a caller with too little of it must not find half of the gradients written.
  StackArena measuring = StackArena::measuring_arena();
  Context inner = ctx;
  inner.memory = &measuring;
  gradients(inner, args);
  const Buffer workspace = ctx.scratch("linear_gradients", measuring.bytes_needed());
  if (ctx.measuring()) return;
  StackArena stack(workspace.data(), workspace.bytes());
  inner.memory = &stack;
  gradients(inner, args);
}

}  // namespace tigon::cpu
