#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace tigon {

// The two 16-bit storage types. They only store: arithmetic happens in f32 (or f64 in the reference), and narrowing
// rounds to nearest, ties to even, exactly once, also from double.

namespace detail {

// Narrows a double to float so that a later narrowing to fewer bits is still exact: when the conversion is inexact,
// the result is forced odd in its last bit ("round to odd"), which keeps the sticky information that a second
// rounding to nearest needs.
constexpr float round_to_odd(double value) noexcept {
  const float nearest = static_cast<float>(value);
  if (value != value || static_cast<double>(nearest) == value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if ((bits & 0x7fffffffu) == 0x7f800000u) return nearest;  // overflow: infinite in every narrower type as well
  const double magnitude = value < 0 ? -value : value;
  const float nearest_magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
  if (static_cast<double>(nearest_magnitude) > magnitude) bits -= 1;  // step back to the truncated value
  return std::bit_cast<float>(bits | 1u);
}

constexpr uint16_t bf16_bits(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // keep NaN a NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr uint16_t f16_bits(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {                                               // subnormal in f16
    if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);           // below half the smallest subnormal
    const uint32_t exponent = magnitude >> 23;
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = 126 - exponent;
    const uint32_t half = 1u << (shift - 1);
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t up = (rest > half || (rest == half && (kept & 1u))) ? 1u : 0u;
    return static_cast<uint16_t>(sign | (kept + up));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

constexpr float f16_to_float(uint16_t h) noexcept {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Zero and subnormals: mantissa · 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

}  // namespace detail

// bfloat16: f32's exponent, 8 bits of significand.
struct bf16 {
  uint16_t bits = 0;

  constexpr bf16() = default;
  constexpr explicit bf16(float value) noexcept : bits(detail::bf16_bits(value)) {}
  constexpr explicit bf16(double value) noexcept : bits(detail::bf16_bits(detail::round_to_odd(value))) {}
  constexpr explicit operator float() const noexcept { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  constexpr explicit operator double() const noexcept { return static_cast<double>(static_cast<float>(*this)); }
};

// IEEE binary16: 5 bits of exponent, 11 of significand, largest finite value 65504.
struct f16 {
  uint16_t bits = 0;

  constexpr f16() = default;
  constexpr explicit f16(float value) noexcept : bits(detail::f16_bits(value)) {}
  constexpr explicit f16(double value) noexcept : bits(detail::f16_bits(detail::round_to_odd(value))) {}
  constexpr explicit operator float() const noexcept { return detail::f16_to_float(bits); }
  constexpr explicit operator double() const noexcept { return static_cast<double>(static_cast<float>(*this)); }
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

}  // namespace tigon
