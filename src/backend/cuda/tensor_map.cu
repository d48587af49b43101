#include "backend/cuda/tensor_map.hpp"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

namespace tigon::cuda {

namespace {

// From the driver, which is not linked.
PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
}

}  // namespace

bool map_heads(const Tensor& t, int rows, CUtensorMap& map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  if (encode == nullptr) return false;
  // Columns, rows, heads, batches.
  const auto size = [&](int d) { return static_cast<cuuint64_t>(t.sizes[d]); };
  const auto bytes = [&](int d) { return static_cast<cuuint64_t>(t.sizes[d] > 1 ? t.strides[d] * 2 : 16); };
  const cuuint64_t sizes[4] = {size(3), size(1), size(2), size(0)};
  const cuuint64_t strides[3] = {bytes(1), bytes(2), bytes(0)};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(rows), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUtensorMapDataType type =
      t.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode(&map, type, 4, t.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace tigon::cuda
