#pragma once

#include <span>

#include "tigon/core/context.hpp"

namespace tigon::ops {

inline constexpr int64_t kNf4Block = 64;   // elements that share a scale
inline constexpr int64_t kNf4Group = 256;  // scales that share one of their own

constexpr int64_t nf4_blocks(int64_t elements) { return (elements + kNf4Block - 1) / kNf4Block; }
constexpr int64_t nf4_groups(int64_t elements) { return (nf4_blocks(elements) + kNf4Group - 1) / kNf4Group; }

// What a flat array of n elements is in NF4 with double quantization (QLoRA, arXiv:2305.14314), 4.127 bits an element,
// in the format of bitsandbytes:
//   element[e] = level[code[e]] · scale[e / 64],  level: the 16 numbers of backend/nf4_levels.hpp
//   scale[b]   = map[scale_code[b]] · group_scale[b / 256] + offset,  map: backend/dynamic_map.hpp, with a sign
// each product and sum rounded to f32. Two codes stand in a byte, the even element's in its upper half.
struct Nf4 {
  Tensor codes{};         // [⌈n / 2⌉] u8
  Tensor scale_codes{};   // [⌈n / 64⌉] u8
  Tensor group_scales{};  // [⌈n / 16384⌉] f32
  Tensor offset{};        // [1] f32
};

// Into NF4. A block's scale is its largest magnitude; a code is that of the nearest level of x · (1 / scale), the lower
// of two that are equally near. The offset is the mean of all scales, and what is left of a scale without it is coded
// as 8-bit states are (adamw.hpp), the group's largest magnitude being its scale. What has no place:
//   a block whose scale is below 1e-38 is scaled by 1e38; one of zeros gives zeros;
//   after one huge value, scales of other blocks are wrong by up to a few per cent of it in its group of 256, and of
//   its share in the mean elsewhere: the format's loss, and bitsandbytes' too;
//   where any value is infinite or NaN, group scales and offset are NaN, and so is every element that is read back.
// The bits are those of bitsandbytes 0.50, but for the mean, which it sums in f32 and this in f64, and the scales'
// codes, for which its operator for CPUs looks at 16 bits of a number and this takes the nearest, as its GPU's does.
// They do not depend on the thread count.
struct Nf4Quantize {
  Tensor x{};  // [n] f32, bf16 or f16
  Nf4 to{};
};
void nf4_quantize(const Context& ctx, const Nf4Quantize& args);

// And back: y = element, rounded once to y's type.
struct Nf4Dequantize {
  Nf4 from{};
  Tensor y{};  // [n] f32, bf16 or f16
};
void nf4_dequantize(const Context& ctx, const Nf4Dequantize& args);

// The numbers that codes stand for, of elements (16) and of scales (256): for who reads files that name theirs.
std::span<const float> nf4_levels();
std::span<const float> nf4_scale_map();

}  // namespace tigon::ops
