#pragma once

#include "tigon/core/context.hpp"

namespace tigon::cpu {

// c = op(a)·op(b) + bias (+ c with accumulate), rounded once to c's type. Operands are f32, bf16 or f16 in any mix,
// with any distance between rows; products are summed in f32. Where bf16 is multiplied natively, values below f32's
// normal range count as zero.
struct Gemm {
  Tensor a{};     // [m, k], or [k, m] when a_transposed
  Tensor b{};     // [k, n], or [n, k] when b_transposed
  Tensor c{};     // [m, n]
  Tensor bias{};  // [n], optional, added to each row
  bool a_transposed = false;
  bool b_transposed = false;
  bool accumulate = false;
  bool native = true;  // false: bf16 is widened to f32 also where the CPU multiplies it, for comparison in tests
};

// Runs on ctx's threads: the output is cut into tiles by its shape alone, and each tile is one single-threaded library
// call, so the bits do not depend on the thread count. Books its scratch from ctx and returns there when measuring.
void gemm(const Context& ctx, const Gemm& args);

// Whether products of two operands of this type are multiplied as they are, at twice the rate of f32 or more: bf16, on
// CPUs with instructions for it.
bool multiplies_natively(DType dtype);

// Enough scratch for this product and for every one with fewer rows, columns or terms: for callers that must book
// before they know how many rows there will be.
int64_t gemm_scratch_limit(const Context& ctx, const Gemm& args);

}  // namespace tigon::cpu
