#pragma once

#include "tigon/core/context.hpp"

namespace tigon::bench {

// What this machine can do at most, measured and not read from a data sheet: bytes read plus bytes written per second
// of a large copy, and FLOP/s of a large f32 GEMM.
struct Ceilings {
  double copy_bytes_per_second = 0;
  double gemm_flops_per_second = 0;
};

// Copies arrays far larger than the last-level cache with all threads; the median of several runs.
double measure_copy(const Context& ctx);
double measure_gemm(const Context& ctx);

}  // namespace tigon::bench
