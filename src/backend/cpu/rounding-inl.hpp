// How an optimizer stores what it has computed in f32: to nearest, or up or down by chance.
#if defined(TIGON_CPU_ROUNDING_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_ROUNDING_INL_
#undef TIGON_CPU_ROUNDING_INL_
#else
#define TIGON_CPU_ROUNDING_INL_
#endif

#include "backend/cpu/pieces-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

using Bits = hn::Vec<D32>;

// v as a value of the type, up or down by chance; random holds 16 bits. NaN and infinity stay.
TIGON_SIMD V stochastic_bf16(V v, Bits random) {
  const D32 d32;
  const auto bits = hn::BitCast(d32, v);
  const auto moved = hn::And(hn::Add(bits, random), hn::Set(d32, 0xffff0000u));
  const auto special = hn::Eq(hn::And(bits, hn::Set(d32, 0x7f800000u)), hn::Set(d32, 0x7f800000u));
  return hn::BitCast(D(), hn::IfThenElse(special, bits, moved));
}

TIGON_SIMD V stochastic_f16(V v, Bits random) {
  const D d;
  const D32 d32;
  const V magnitude = hn::Abs(v);
  // The step of f16 at this magnitude: 2^(exponent − 10), but not below the subnormals' 2^-24.
  const V power = hn::BitCast(d, hn::And(hn::BitCast(d32, magnitude), hn::Set(d32, 0x7f800000u)));
  const V step = hn::Mul(hn::Max(power, set(0x1p-14f)), set(0x1p-10f));
  const V steps = hn::Div(magnitude, step);
  const V cut = hn::Floor(steps);
  const V chance =
      hn::MulAdd(hn::Sub(steps, cut), set(65536.0f), hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<D>(), random)));
  const V moved = hn::Mul(hn::Add(cut, hn::IfThenElseZero(hn::Ge(chance, set(65536.0f)), set(1.0f))), step);
  const auto finite = hn::Lt(magnitude, set(0x1p17f));  // beyond f16's range there is nothing to choose
  return hn::IfThenElse(finite, hn::CopySign(moved, v), v);
}

// Rounds n f32 values to the type of t by chance; `shift` says which half of the words to use.
template <int kShift, uint32_t kTimes = 1>
void round_piece(float* values, DType dtype, const uint32_t* words, int64_t n) {
  const D32 d32;
  const auto low_half = hn::Set(d32, 0xffffu);
  for_row(n, [&](int64_t j, auto part) HWY_ATTR {
    // The buffer of words is longer than n, so a whole vector may be read.
    Bits word = hn::LoadU(d32, words + j);
    if constexpr (kTimes != 1) word = hn::Mul(word, hn::Set(d32, kTimes));
    const Bits random = hn::And(hn::ShiftRight<kShift>(word), low_half);
    const V v = load(values + j, part);
    store(dtype == DType::bf16 ? stochastic_bf16(v, random) : stochastic_f16(v, random), values + j, part);
  });
}

template <bool kStream>
void copy_param(const float* values, const Tensor& t, int64_t begin, int64_t n) {
  with_type(t.dtype, [&](auto* type) HWY_ATTR {
    auto* out = t.as<std::remove_pointer_t<decltype(type)>>() + begin;
    for_row(n, [&](int64_t j, auto part) HWY_ATTR { put<kStream>(load(values + j, part), out + j, part); });
  });
}

// n new values of a parameter, from element `first` on, and the copy, which is of the parameter as stored. With `words`
// by chance, as their low halves say; they are more than n.
inline void store_param(float* values, const Tensor& param, const Tensor& copy, int64_t first, int64_t n,
                        const uint32_t* words, bool stream_copy) {
  if (param.dtype != DType::f32) {
    if (words != nullptr) {
      round_piece<0>(values, param.dtype, words, n);
    } else if (copy) {
      with_type(param.dtype, [&](auto* type) HWY_ATTR {
        using T = std::remove_pointer_t<decltype(type)>;
        for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(rounded<T>(load(values + j, part)), values + j, part); });
      });
    }
    write_piece(values, param, first, 1, n);
  }
  if (copy && stream_copy) copy_param<true>(values, copy, first, n);
  if (copy && !stream_copy) copy_param<false>(values, copy, first, n);
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
