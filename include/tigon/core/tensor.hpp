#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "tigon/core/device.hpp"
#include "tigon/core/dtype.hpp"

namespace tigon {

inline constexpr int kMaxRank = 4;

// A view of strided elements: it owns nothing and is cheap to copy. A default-constructed Tensor is absent, which is
// how ops mark an optional argument that was not given. Strides count elements.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device{};
  int32_t rank = -1;
  int64_t sizes[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};

  // A row-major tensor without gaps. Throws Error where the sizes are negative or their product overflows.
  static Tensor contiguous(void* data, DType dtype, std::span<const int64_t> sizes, Device device = {});
  static Tensor contiguous(void* data, DType dtype, std::initializer_list<int64_t> sizes, Device device = {}) {
    return contiguous(data, dtype, std::span<const int64_t>(sizes.begin(), sizes.size()), device);
  }

  bool present() const noexcept { return rank >= 0; }
  explicit operator bool() const noexcept { return present(); }

  int64_t elements() const noexcept;
  // Bytes of the elements alone, whatever the strides.
  int64_t bytes() const noexcept { return elements() * size_of(dtype); }
  bool is_contiguous() const noexcept;

  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }

  // Element [begin, end) of one dimension; the same memory.
  Tensor slice(int dim, int64_t begin, int64_t end) const;
  // The same elements under another shape; only for contiguous tensors.
  Tensor reshape(std::initializer_list<int64_t> new_sizes) const;
  // Two dimensions exchanged; the same memory.
  Tensor transpose(int dim_a, int dim_b) const;
};

// "[4096, 2048]", or "absent".
std::string shape_string(const Tensor& tensor);
std::string shape_string(std::span<const int64_t> sizes);

// Product of sizes as bytes, with overflow checked; throws Error naming `where`.
int64_t checked_bytes(const char* where, DType dtype, std::span<const int64_t> sizes);

}  // namespace tigon
