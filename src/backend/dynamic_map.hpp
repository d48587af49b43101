#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <stdexcept>

// The 256 numbers that 8-bit optimizer states stand for, as bitsandbytes has them ("8-bit optimizers via block-wise
// quantization", arXiv:2110.02861): 0, 1, and between them seven decades, from 1e-7 to 1. Of the decade that ends at
// 10^-d there are 2^(6-d) entries (without a sign twice as many), the middles of equal parts of [0.1, 1]·10^-d; with a
// sign each stands there negated too, but for 1. A code is the place in ascending order.
namespace tigon {

using DynamicMap = std::array<float, 256>;

inline constexpr int kDecades = 7;
inline constexpr int kZeroOfSigned = 127;  // the code of 0; without a sign it is 0

constexpr DynamicMap dynamic_map(bool has_sign) {
  // In f32, step by step as torch.linspace and its means go: then the entries are bitsandbytes' to the last bit.
  constexpr float kPowers[kDecades] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  const int zero = has_sign ? kZeroOfSigned : 0;
  DynamicMap map{};
  int next = zero + 1;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int parts = (has_sign ? 1 : 2) << decade;
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    const auto bound = [&](int i) {  // with one rounding, as a fused multiply-add
      const double from = i < (parts + 1) / 2 ? static_cast<double>(0.1f) : 1.0 - static_cast<double>(step) * parts;
      return static_cast<float>(from + static_cast<double>(step) * i);
    };
    for (int i = 0; i < parts; ++i, ++next) {
      map[static_cast<size_t>(next)] = kPowers[decade] * ((bound(i) + bound(i + 1)) / 2.0f);
      if (has_sign) map[static_cast<size_t>(2 * zero - next)] = -map[static_cast<size_t>(next)];
    }
  }
  map[255] = 1.0f;
  return map;
}

// The nearest entry without a search. All magnitudes that agree in their upper 16 bits (eight of the exponent, seven of
// the fraction) lie between the same two entries, or three: between neighbours there is at most one middle. So for
// each such cell stands how many middles lie below it, and the lower bits of the one inside it:
//   entry = below << 17 | lower bits of the middle, or 2^16 where there is none
// Then below + (lower bits > entry's lower bits) counts the middles that a magnitude exceeds, which is its code where
// there is no sign. Below 0 the code counts down from that of 0, and a middle is exceeded when it is reached: of two
// equally near entries the lower is taken.
inline constexpr uint32_t kFirstCell = 0x3400;                    // of 2^-23 and everything below
inline constexpr uint32_t kCells = 0x3F80 - kFirstCell + 1;       // up to that of 1
inline constexpr uint32_t kCellMiddle = (uint32_t{1} << 17) - 1;  // the entry's lower bits
inline constexpr uint32_t kNoMiddle = uint32_t{1} << 16;
using DynamicCells = std::array<uint32_t, kCells>;

constexpr DynamicCells dynamic_cells(bool has_sign) {
  const DynamicMap map = dynamic_map(has_sign);
  DynamicCells cells{};
  size_t entry = has_sign ? kZeroOfSigned : 0;
  uint32_t below = 0;
  for (uint32_t cell = 0; cell < kCells; ++cell) {
    cells[cell] = below << 17 | kNoMiddle;
    for (int inside = 0; entry + 1 < map.size(); ++entry, ++below, ++inside) {
      const auto middle = std::bit_cast<uint32_t>((map[entry] + map[entry + 1]) / 2.0f);
      if (middle >> 16 > kFirstCell + cell) break;
      if (inside > 0 || middle >> 16 < kFirstCell + cell) throw std::logic_error("a cell holds two middles");
      cells[cell] = below << 17 | (middle & 0xffff);
    }
  }
  return cells;
}

struct DynamicTables {
  constexpr explicit DynamicTables(bool has_sign) : map(dynamic_map(has_sign)), cells(dynamic_cells(has_sign)) {}
  DynamicMap map;
  DynamicCells cells;
};
inline constexpr DynamicTables kSignedTables{true}, kUnsignedTables{false};

}  // namespace tigon
