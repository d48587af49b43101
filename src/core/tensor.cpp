#include "tigon/core/tensor.hpp"

#include <algorithm>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

[[noreturn]] void throw_size(const char* where, std::span<const int64_t> sizes) {
  throw Error(ErrorCode::invalid_argument, {.where = where,
                                            .what = "the size of " + shape_string(sizes) + " is negative or overflows",
                                            .expected = "less than 2^63 bytes"});
}

}  // namespace

Tensor Tensor::contiguous(void* data, DType dtype, std::span<const int64_t> sizes, Device device) {
  if (sizes.size() > static_cast<size_t>(kMaxRank)) {
    throw Error(ErrorCode::invalid_argument, {.where = "Tensor",
                                              .what = "too many dimensions",
                                              .expected = "at most " + std::to_string(kMaxRank),
                                              .got = std::to_string(sizes.size())});
  }
  Tensor tensor;
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.device = device;
  tensor.rank = static_cast<int32_t>(sizes.size());
  int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.sizes[d] = sizes[static_cast<size_t>(d)];
    tensor.strides[d] = stride;
    if (tensor.sizes[d] < 0 || __builtin_mul_overflow(stride, std::max<int64_t>(1, tensor.sizes[d]), &stride))
      throw_size("Tensor", sizes);
  }
  return tensor;
}

int64_t Tensor::elements() const noexcept {
  if (!present()) return 0;
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= sizes[d];
  return count;
}

bool Tensor::is_contiguous() const noexcept {
  if (elements() == 0) return true;  // no strides are ever taken
  int64_t expected = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t end) const {
  if (dim < 0 || dim >= rank || begin < 0 || end < begin || end > sizes[dim]) {
    throw Error(ErrorCode::invalid_argument, {.where = "Tensor::slice",
                                              .what = "the slice leaves the tensor",
                                              .expected = "0 <= begin <= end <= size of dimension " +
                                                          std::to_string(dim) + " of " + shape_string(*this),
                                              .got = "[" + std::to_string(begin) + ", " + std::to_string(end) + ")"});
  }
  Tensor part = *this;
  part.data = static_cast<std::byte*>(data) + begin * strides[dim] * size_of(dtype);
  part.sizes[dim] = end - begin;
  return part;
}

Tensor Tensor::reshape(std::initializer_list<int64_t> new_sizes) const {
  Tensor shaped = contiguous(data, dtype, new_sizes, device);
  if (!is_contiguous() || shaped.elements() != elements()) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "Tensor::reshape",
                 .what = "cannot view " + shape_string(*this) + " as " + shape_string(shaped),
                 .fix = "Only a contiguous tensor can take a new shape, with the same number of elements."});
  }
  return shaped;
}

Tensor Tensor::transpose(int dim_a, int dim_b) const {
  if (dim_a < 0 || dim_b < 0 || dim_a >= rank || dim_b >= rank) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "Tensor::transpose", .what = "no such dimension in " + shape_string(*this)});
  }
  Tensor swapped = *this;
  std::swap(swapped.sizes[dim_a], swapped.sizes[dim_b]);
  std::swap(swapped.strides[dim_a], swapped.strides[dim_b]);
  return swapped;
}

std::string shape_string(std::span<const int64_t> sizes) {
  std::string text = "[";
  for (size_t d = 0; d < sizes.size(); ++d) text += (d ? ", " : "") + std::to_string(sizes[d]);
  return text + "]";
}

std::string shape_string(const Tensor& tensor) {
  if (!tensor.present()) return "absent";
  return shape_string(std::span<const int64_t>(tensor.sizes, static_cast<size_t>(tensor.rank)));
}

int64_t checked_bytes(const char* where, DType dtype, std::span<const int64_t> sizes) {
  int64_t bytes = size_of(dtype);
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) throw_size(where, sizes);
  }
  return bytes;
}

}  // namespace tigon
