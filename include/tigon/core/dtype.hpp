#pragma once

#include <cstdint>
#include <string_view>

#include "tigon/core/half.hpp"

namespace tigon {

// Element types of tensors. Ops store f32, bf16 and f16 and compute in f32; f64 is served by the plain reference
// backend, for gradient checks. The numbers are part of the C ABI.
enum class DType : int32_t { f32 = 0, bf16 = 1, f16 = 2, f64 = 3, i32 = 4, i64 = 5, u8 = 6 };

inline constexpr int kDTypeCount = 7;

constexpr bool is_known(DType dtype) noexcept {
  return static_cast<int32_t>(dtype) >= 0 && static_cast<int32_t>(dtype) < kDTypeCount;
}

// Bytes of one element; 0 for a value that is no DType.
constexpr int64_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::f64:
    case DType::i64: return 8;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr bool is_float(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
}

constexpr bool is_index(DType dtype) noexcept { return dtype == DType::i32 || dtype == DType::i64; }

// Distance from 1 to the next larger value of a floating type: the unit in which tests state tolerances.
constexpr double epsilon(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return 0x1p-23;
    case DType::bf16: return 0x1p-7;
    case DType::f16: return 0x1p-10;
    case DType::f64: return 0x1p-52;
    default: return 0;
  }
}

std::string_view to_string(DType dtype) noexcept;

// Reads "f32", "bf16", …; throws Error naming the known ones.
DType dtype_from_string(std::string_view text);

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<f16>() {
  return DType::f16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::u8;
}

}  // namespace tigon
