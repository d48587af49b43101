#include "backend/cpu/column_sums.hpp"

#include "backend/cpu/cpu_backend.hpp"

namespace tigon::cpu {

void column_sums(const Context& ctx, const Tensor& x, const Tensor& sums, bool accumulate) {
  if (!accumulate) return reduce(ctx, {.x = x, .y = sums, .over_rows = true});
  const OwnedTensor fresh(ctx, "column_sums", DType::f32, {x.sizes[1]}, MemoryClass::workspace);
  reduce(ctx, {.x = x, .y = fresh, .over_rows = true});
  binary(ctx, {.op = ops::BinaryOp::add, .a = sums, .b = fresh, .y = sums});
}

}  // namespace tigon::cpu
