#pragma once

#include <cstdint>

#include <span>

#include "tigon/core/context.hpp"

namespace tigon::ops {

enum class Rounding : int32_t { nearest = 0, stochastic = 1 };

inline constexpr uint32_t kBitsOfV = 0x9E3779B1u;  // what turns a random word into v's bits, below; odd
inline constexpr int64_t kCodeBlock = 256;         // elements of m or v that share a scale where they are 8-bit

// One AdamW update of a flat array of parameters, in f32, in place:
//   g = grad·grad_scale;  m = β1·m + (1−β1)·g;  v = β2·v + (1−β2)·g²
//   param −= lr·(m/(1−β1^step) / (sqrt(v/(1−β2^step)) + eps) + weight_decay·param)
// The new m and v enter the parameter before they are rounded to their types. Bits do not depend on the thread count.
//
// Stochastic rounding takes 16 random bits r per rounded value: its magnitude is cut to the type, and goes one step up
// when fraction·2^16 + r >= 2^16, fraction being the part of a step that was cut. So exact values never change and the
// mean is kept. The bits are a function of (seed, step, tensor_id, element) alone, element = first_element + e: with
// RandomStream{seed, step, tensor_id}, param takes the low half and m the high half of bits(element), v the high half
// of bits(element)·kBitsOfV modulo 2^32, which is as even and, for all that rounding asks, independent of the other
// two. So an update does not depend on how the array is cut.
//
// m and v in 8 bits, in the format of bitsandbytes: each block of 256 elements has a scale, its largest magnitude, and
// an element is the number of the nearest entry, times the scale, of a table of 256 (backend/dynamic_map.hpp: seven
// decades, signed for m, not for v; the lower of two that are equally near). Zeroed memory is zero. What has no entry:
//   a block that is zero, or below f32's normal range, has the scale 0 and is zero;
//   what is less than half of the smallest entry times the scale, beside one huge value, is zero;
//   an element whose new m or v is infinite or NaN keeps zero for both and leaves its block alone: its parameter, which
//   then is NaN as with other types, tells of it.
struct Adamw {
  Tensor param{};       // [n] f32, bf16 or f16
  Tensor grad{};        // [n] any floating type
  Tensor m{};           // [n] f32 or bf16; or u8, and then v too
  Tensor v{};           // [n] f32 or bf16; or u8
  Tensor m_scale{};     // [⌈n / 256⌉] f32, of m in 8 bits
  Tensor v_scale{};     // [⌈n / 256⌉] f32, of v in 8 bits
  Tensor param_copy{};  // [n] f32, bf16 or f16, optional: receives the new param, as stored, to nearest
  Tensor grad_scale{};  // [1] f32, optional: clipping and loss scale; read where the op runs
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  int64_t step = 1;                       // counts from 1
  Rounding rounding = Rounding::nearest;  // of param, m and v where they are 16-bit
  uint64_t seed = 0;
  uint32_t tensor_id = 0;
  int64_t first_element = 0;  // index of param[0] in the whole tensor, for shards; of 8-bit states whole blocks
};
void adamw(const Context& ctx, const Adamw& args);

// Many updates at once, as one after the other would be: on a CPU their blocks are shared among the threads together,
// on a GPU up to 128 of them are one launch. Each is checked as adamw checks it; that no two of them share memory is
// not. All are in f64, or none.
struct AdamwList {
  std::span<const Adamw> updates{};
};
void adamw_list(const Context& ctx, const AdamwList& args);

}  // namespace tigon::ops
