#pragma once

#include "tigon/core/context.hpp"

namespace tigon::cuda {

// c = op(a)·op(b) + bias (+ c with accumulate), rounded once to c's type. Operands are f32, bf16 or f16 with any
// distance between rows; products are summed in f32 (never in tf32). Operands of two types, or a narrow c of f32
// operands, go through f32 copies. Large 16-bit products of odd sizes are padded (gemm_padded.hpp); where k is odd
// along a and across b, what the last k % 8 terms add (with accumulate, to c) is rounded once before the rest.
struct Gemm {
  Tensor a{};     // [m, k], or [k, m] when a_transposed
  Tensor b{};     // [k, n], or [n, k] when b_transposed
  Tensor c{};     // [m, n]
  Tensor bias{};  // [n], optional, added to each row; not with accumulate
  bool a_transposed = false;
  bool b_transposed = false;
  bool accumulate = false;
  // What lies between rows, up to the next multiple of 16 bytes, belongs to the matrix: zeros in a and b, anything in
  // c.
  bool a_padded = false;
  bool b_padded = false;
  bool c_padded = false;
  // Where a caller runs many products, one workspace for all; else each call books its own.
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

// One library call on ctx.stream, or a few where sizes are odd. The algorithm is chosen once per shape, type and
// alignment and then kept, so that equal calls give equal bits.
void gemm(const Context& ctx, const Gemm& args);

// Whether TIGON_GEMM_TUNE asks for algorithms to be timed when they are chosen. That happens only where products run at
// once: one that is recorded in a graph keeps the untimed choice.
bool gemm_tunes();

}  // namespace tigon::cuda
