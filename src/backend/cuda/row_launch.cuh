#pragma once

#include <utility>

#include "backend/cuda/launch.cuh"

// The shape of a launch over rows, and the choice of a kernel by type.
namespace tigon::cuda {

inline constexpr int64_t kMaxGridX = (int64_t{1} << 31) - 1;
inline constexpr int64_t kMaxGridY = 65535;

// The smallest power of two that is at least n, within [low, high], both powers of two.
constexpr int64_t power_of_two_for(int64_t n, int64_t low, int64_t high) {
  int64_t p = low;
  while (p < n && p < high) p *= 2;
  return p;
}

// A launch over rows × items of a row. Kernels step by the whole grid in both directions, so its limits are no limits
// of the op: rows by blockIdx.x and threadIdx.y, items by blockIdx.y and threadIdx.x.
struct RowGrid {
  dim3 grid;
  dim3 block;
};
inline RowGrid row_grid(int64_t rows, int64_t items, int64_t threads = 256) {
  const int64_t x = power_of_two_for(items, 1, threads), y = threads / x;
  return {dim3(static_cast<unsigned>(std::min(divide_up(rows, y), kMaxGridX)),
               static_cast<unsigned>(std::min(divide_up(items, x), kMaxGridY))),
          dim3(static_cast<unsigned>(x), static_cast<unsigned>(y))};
}

// Whether every row begins at a multiple of 16 bytes. An absent tensor does not mind.
inline bool rows_aligned(const Tensor& t) {
  if (!t.present()) return true;
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  for (int d = 0; d + 1 < t.rank; ++d) {
    if (t.sizes[d] > 1 && t.strides[d] * size_of(t.dtype) % 16 != 0) return false;
  }
  return true;
}
template <class... Tensors>
bool rows_aligned(const Tensor& first, const Tensors&... others) {
  return rows_aligned(first) && (rows_aligned(others) && ...);
}

// How the rows of some tensors of one shape and type can be walked.
enum class Reach {
  vectors,   // in vectors of 16 bytes, up to the last column, or past it where rows are padded
  shifted,   // the same but for the first and the last vector, which a row may share with its neighbours
  elements,  // one by one: the rows of one tensor begin at other places of 16 bytes than those of another
};
template <class... Tensors>
Reach reach_of(bool padded, const Tensor& first, const Tensors&... others) {
  const int64_t size = size_of(first.dtype);
  if (rows_aligned(first, others...) && (padded || first.sizes[1] * size % 16 == 0)) return Reach::vectors;
  [[maybe_unused]] const auto alike = [&](const Tensor& t) {
    if (!t.present()) return true;
    if ((reinterpret_cast<uintptr_t>(t.data) - reinterpret_cast<uintptr_t>(first.data)) % 16 != 0) return false;
    return first.sizes[0] == 1 || (t.strides[0] - first.strides[0]) * size % 16 == 0;
  };
  return (alike(others) && ...) ? Reach::shifted : Reach::elements;
}

// rows_aligned of the strides alone: addresses are not known when scratch is booked.
template <class... Tensors>
bool strides_aligned(Tensors... tensors) {
  ((tensors.data = nullptr), ...);
  return rows_aligned(tensors...);
}

[[noreturn]] inline void refuse_type(const char* where, DType dtype) {
  throw Error(ErrorCode::unsupported, {.where = where,
                                       .what = "a GPU does not run this op in " + std::string(to_string(dtype)),
                                       .expected = "f32, bf16 or f16",
                                       .fix = "f64 runs on the CPU."});
}

// Calls f with a null pointer to the element type: f32, bf16 or f16.
template <class F>
void dispatch(const char* where, DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return std::forward<F>(f)(static_cast<float*>(nullptr));
    case DType::bf16: return std::forward<F>(f)(static_cast<bf16*>(nullptr));
    case DType::f16: return std::forward<F>(f)(static_cast<f16*>(nullptr));
    default: refuse_type(where, dtype);
  }
}

}  // namespace tigon::cuda
