#pragma once

#include <initializer_list>

#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

// Single elements whose type is known only at run time.
namespace tigon::cuda {

// The GPU computes with f32, bf16 and f16; f64 is for the reference on the CPU.
inline void check_storage(const char* where, std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors) {
    if (t.dtype != DType::f32 && t.dtype != DType::bf16 && t.dtype != DType::f16) refuse_type(where, t.dtype);
  }
}

__device__ inline float read_element(const void* data, DType dtype, int64_t offset) {
  switch (dtype) {
    case DType::bf16: return load_one(static_cast<const bf16*>(data) + offset);
    case DType::f16: return load_one(static_cast<const f16*>(data) + offset);
    default: return static_cast<const float*>(data)[offset];
  }
}

__device__ inline void write_element(void* data, DType dtype, int64_t offset, float value) {
  switch (dtype) {
    case DType::bf16: return store_one(static_cast<bf16*>(data) + offset, value);
    case DType::f16: return store_one(static_cast<f16*>(data) + offset, value);
    default: static_cast<float*>(data)[offset] = value;
  }
}

__device__ inline int64_t read_index(const void* data, DType dtype, int64_t offset) {
  return dtype == DType::i32 ? static_cast<const int32_t*>(data)[offset] : static_cast<const int64_t*>(data)[offset];
}

}  // namespace tigon::cuda
