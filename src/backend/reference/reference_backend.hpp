#pragma once

#include "backend/backend.hpp"

// The plain backend: f64, one loop after another, no tricks. It defines what the fast backends must compute, serves f64
// tensors (gradient checks), and is itself checked by finite differences.
namespace tigon::reference {

const Backend& backend();

TIGON_BACKEND_OPS(TIGON_DECLARE_OP)

// Element access by index, for any strides.
inline double& at(const Tensor& t, int64_t i) { return t.as<double>()[i * t.strides[0]]; }
inline double& at(const Tensor& t, int64_t i, int64_t j) { return t.as<double>()[i * t.strides[0] + j * t.strides[1]]; }
inline double& at(const Tensor& t, int64_t i, int64_t j, int64_t k) {
  return t.as<double>()[i * t.strides[0] + j * t.strides[1] + k * t.strides[2]];
}
inline double& at(const Tensor& t, int64_t i, int64_t j, int64_t k, int64_t l) {
  return t.as<double>()[i * t.strides[0] + j * t.strides[1] + k * t.strides[2] + l * t.strides[3]];
}
inline int64_t index_at(const Tensor& t, int64_t i) {
  return t.dtype == DType::i32 ? t.as<int32_t>()[i * t.strides[0]] : t.as<int64_t>()[i * t.strides[0]];
}

}  // namespace tigon::reference
