#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// The elementary ops from which the unfused forms are chained, one pass over memory each, as an eager framework runs
// them. Tensors have up to four dimensions and any strides; a stride of 0 repeats an element (broadcasting), though not
// of y. Results are rounded to y's type, which may differ from x's. y may be x where shapes agree.

// y = op(alpha·x + beta). With alpha = 0 x is not read (as in BLAS): that fills y with op(beta).
enum class UnaryOp : int32_t { copy, square, sqrt, rsqrt, exp, log, tanh, silu, gelu_tanh, gelu_erf };
struct Unary {
  UnaryOp op = UnaryOp::copy;
  Tensor x{};
  Tensor y{};
  double alpha = 1.0;
  double beta = 0.0;
};
void unary(const Context& ctx, const Unary& args);

// y = op(a, b). The *_grad ops take the upstream gradient as a and the saved input (for tanh_grad the saved output) as
// b.
enum class BinaryOp : int32_t { add, sub, mul, div, silu_grad, gelu_tanh_grad, gelu_erf_grad, tanh_grad };
struct Binary {
  BinaryOp op = BinaryOp::add;
  Tensor a{};
  Tensor b{};
  Tensor y{};
};
void binary(const Context& ctx, const Binary& args);

// One value per row, or with `over_rows` one per column. Accumulated in f32 or better in an order fixed by the shape.
enum class ReduceOp : int32_t { sum, mean, max };
struct Reduce {
  ReduceOp op = ReduceOp::sum;
  Tensor x{};  // [rows, columns]
  Tensor y{};  // [rows], or [columns] with over_rows (sum and mean only)
  bool over_rows = false;
};
void reduce(const Context& ctx, const Reduce& args);

// y_i = x[i, index_i]; negative indices give 0. On a CPU an index beyond the columns is an error.
struct Gather {
  Tensor x{};      // [rows, columns]
  Tensor index{};  // [rows] i32 or i64
  Tensor y{};      // [rows]
};
void gather(const Context& ctx, const Gather& args);

// y[i, index_i] += x_i; negative indices are passed over.
struct ScatterAdd {
  Tensor x{};      // [rows]
  Tensor index{};  // [rows]
  Tensor y{};      // [rows, columns]
};
void scatter_add(const Context& ctx, const ScatterAdd& args);

}  // namespace tigon::ops
