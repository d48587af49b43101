#pragma once

#include "tigon/ops/elementary.hpp"
#include "tigon/ops/unfused.hpp"

namespace tigon::ops::unfused {

// The vocabulary of the chains: each call is one pass over memory into a fresh intermediate, as in an eager framework.
class Chain {
 public:
  explicit Chain(const Context& ctx) : ctx_(ctx) {}

  // The type eager code computes losses and norms in: f32, or f64 where everything is.
  static DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

  OwnedTensor make(const char* name, DType dtype, std::initializer_list<int64_t> sizes) const {
    return {ctx_, name, dtype, sizes, MemoryClass::activations};
  }
  OwnedTensor like(const char* name, const Tensor& t, DType dtype) const {
    return {ctx_, name, dtype, std::span<const int64_t>(t.sizes, static_cast<size_t>(t.rank)),
            MemoryClass::activations};
  }

  OwnedTensor map(const char* name, UnaryOp op, const Tensor& x, DType dtype, double alpha = 1, double beta = 0) const {
    OwnedTensor y = like(name, x, dtype);
    unary(ctx_, {.op = op, .x = x, .y = y, .alpha = alpha, .beta = beta});
    return y;
  }
  OwnedTensor cast(const char* name, const Tensor& x, DType dtype) const { return map(name, UnaryOp::copy, x, dtype); }
  OwnedTensor zip(const char* name, BinaryOp op, const Tensor& a, const Tensor& b, DType dtype) const {
    OwnedTensor y = like(name, a, dtype);
    binary(ctx_, {.op = op, .a = a, .b = b, .y = y});
    return y;
  }
  OwnedTensor rows(const char* name, ReduceOp op, const Tensor& x) const {
    OwnedTensor y = make(name, wide(x.dtype), {x.sizes[0]});
    reduce(ctx_, {.op = op, .x = x, .y = y});
    return y;
  }
  void copy_to(const Tensor& x, const Tensor& y, double alpha = 1) const {
    unary(ctx_, {.op = UnaryOp::copy, .x = x, .y = y, .alpha = alpha});
  }
  void zip_to(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& y) const {
    binary(ctx_, {.op = op, .a = a, .b = b, .y = y});
  }
  // Σ over rows of x, into or onto y.
  void sum_over_rows(const Tensor& x, const Tensor& y, bool accumulate) const {
    if (!accumulate) return reduce(ctx_, {.x = x, .y = y, .over_rows = true});
    OwnedTensor sum = make("column_sum", wide(x.dtype), {x.sizes[1]});
    reduce(ctx_, {.x = x, .y = sum, .over_rows = true});
    zip_to(BinaryOp::add, y, sum, y);
  }

 private:
  const Context& ctx_;
};

// [columns] repeated for each row, and [rows] repeated for each column: views without memory.
inline Tensor across_rows(const Tensor& vector, int64_t rows) {
  Tensor t = vector;
  t.rank = 2;
  t.sizes[1] = vector.sizes[0], t.strides[1] = vector.strides[0];
  t.sizes[0] = rows, t.strides[0] = 0;
  return t;
}
inline Tensor across_columns(const Tensor& vector, int64_t columns) {
  Tensor t = vector;
  t.rank = 2;
  t.sizes[1] = columns, t.strides[1] = 0;
  return t;
}

}  // namespace tigon::ops::unfused
