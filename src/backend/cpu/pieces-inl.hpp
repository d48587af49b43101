// Short pieces of a tensor as contiguous f32, whatever its type and strides: for ops that take any mix of types, where
// one kernel per combination would be too many. A piece fits the nearest cache, so the extra copy costs little.
#if defined(TIGON_CPU_PIECES_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_PIECES_INL_
#undef TIGON_CPU_PIECES_INL_
#else
#define TIGON_CPU_PIECES_INL_
#endif

#include "backend/cpu/simd-inl.hpp"
#include "tigon/core/tensor.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

constexpr int64_t kPiece = 1024;

// n elements from offset on, copied to out as f32.
inline void copy_piece(const Tensor& t, int64_t offset, int64_t stride, int64_t n, float* out) {
  with_type(t.dtype, [&](auto* type) HWY_ATTR {
    const auto* p = t.as<std::remove_pointer_t<decltype(type)>>() + offset;
    if (stride == 1) {
      for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(load(p + j, part), out + j, part); });
    } else {
      for (int64_t j = 0; j < n; ++j) out[j] = static_cast<float>(p[j * stride]);
    }
  });
}

// The same without a copy where the elements already are contiguous f32; else the copy is in buffer.
inline float* read_piece(const Tensor& t, int64_t offset, int64_t stride, int64_t n, float* buffer) {
  if (t.dtype == DType::f32 && stride == 1) return t.as<float>() + offset;
  copy_piece(t, offset, stride, n, buffer);
  return buffer;
}

// n values rounded to t's type and stored from offset on.
inline void write_piece(const float* values, const Tensor& t, int64_t offset, int64_t stride, int64_t n) {
  with_type(t.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    T* p = t.as<T>() + offset;
    if (stride == 1) {
      for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(load(values + j, part), p + j, part); });
    } else {
      for (int64_t j = 0; j < n; ++j) p[j * stride] = T(values[j]);
    }
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
