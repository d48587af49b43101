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

template <int kRank>
bool encode(CUtensorMap& map, CUtensorMapDataType type, const void* data, const cuuint64_t (&sizes)[kRank],
            const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank], CUtensorMapSwizzle swizzle) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encoder = find_encoder();
  cuuint32_t steps[kRank];
  for (cuuint32_t& step : steps) step = 1;
  return encoder != nullptr &&
         encoder(&map, type, kRank, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                 swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

CUtensorMapDataType type_of(const Tensor& t) {
  return t.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

}  // namespace

bool map_heads(const Tensor& t, int rows, CUtensorMap& map) {
  // Columns, rows, heads, batches.
  const auto size = [&](int d) { return static_cast<cuuint64_t>(t.sizes[d]); };
  const auto bytes = [&](int d) { return static_cast<cuuint64_t>(t.sizes[d] > 1 ? t.strides[d] * 2 : 16); };
  const cuuint64_t sizes[4] = {size(3), size(1), size(2), size(0)};
  const cuuint64_t strides[3] = {bytes(1), bytes(2), bytes(0)};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(rows), 1, 1};
  return encode<4>(map, type_of(t), t.data, sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
}

bool map_panels(const Tensor& t, int rows, CUtensorMap& map) {
  const auto size = [&](int d) { return static_cast<cuuint64_t>(t.sizes[d]); };
  const auto pitch = static_cast<cuuint64_t>(t.sizes[0] > 1 ? t.strides[0] * 2 : 16);
  return encode<2>(map, type_of(t), t.data, {size(1), size(0)}, {pitch}, {64, static_cast<cuuint32_t>(rows)},
                   CU_TENSOR_MAP_SWIZZLE_128B);
}

bool map_row_parts(const float* data, int64_t rows, int64_t pitch, int columns, CUtensorMap& map, int at_a_time) {
  return encode<2>(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, data,
                   {static_cast<cuuint64_t>(pitch), static_cast<cuuint64_t>(rows)},
                   {static_cast<cuuint64_t>(pitch) * sizeof(float)},
                   {static_cast<cuuint32_t>(columns), static_cast<cuuint32_t>(at_a_time)}, CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace tigon::cuda
