#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <compare>
#include <cstdint>

namespace tigon::cuda {

// All that the choice of an algorithm may depend on. Row-major, as in Gemm.
struct GemmKey {
  int64_t m, n, k, lda, ldb, ldc, workspace;
  int device;
  cudaDataType_t in_type, out_type;
  uint32_t align_a, align_b, align_c;  // bytes
  bool a_transposed, b_transposed, accumulate, bias;
  auto operator<=>(const GemmKey&) const = default;
};

struct GemmPointers {
  const void* a;
  const void* b;
  void* c;
  const void* bias;
  void* workspace;
  cudaStream_t stream;
};

// Runs one product with the algorithm kept for its key: one of the library's choices by a rule, or the fastest of those
// that give the same bits where TIGON_GEMM_TUNE is set: they are then timed when a key is first seen (which waits, and
// takes memory for two more c). TIGON_GEMM_FILE names a file that keeps tuned choices from run to run.
void run_gemm(const GemmKey& key, const GemmPointers& pointers);

}  // namespace tigon::cuda
