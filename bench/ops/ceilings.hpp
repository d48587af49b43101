#pragma once

#include "tigon/core/context.hpp"

namespace tigon::bench {

// What this machine can do at most, measured and not read from a data sheet: bytes read plus bytes written per second
// of a large copy, and FLOP/s of a large GEMM (on a CPU the best of several shapes, in the storage type; bf16 on a GPU;
// 0 where the backend has none yet).
struct Ceilings {
  double copy_bytes_per_second = 0;
  double gemm_flops_per_second = 0;
};

// Copies arrays far larger than the last-level cache, with all threads of a CPU; the median of several runs.
double measure_copy(const Context& ctx);
// With `quick` only a few products, which take a fraction of a second together, for whoever waits.
double measure_gemm(const Context& ctx, DType dtype, bool quick = false);

}  // namespace tigon::bench
