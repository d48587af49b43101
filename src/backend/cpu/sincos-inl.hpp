// sin and cos of f32 angles, by f64 lanes.
#if defined(TIGON_CPU_SINCOS_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_SINCOS_INL_
#undef TIGON_CPU_SINCOS_INL_
#else
#define TIGON_CPU_SINCOS_INL_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

using D64 = hwy::HWY_NAMESPACE::ScalableTag<double>;
using V64 = hwy::HWY_NAMESPACE::Vec<D64>;

struct SinCos {
  V64 sin, cos;
};

constexpr float kLargestAngle = 0x1p32f;

// Within 1e-9 for |x| < kLargestAngle: f64 because the reduction to a quarter turn cancels as many bits as the position
// has, and angles of a long context would lose all of f32's.
HWY_INLINE HWY_ATTR SinCos sincos(V64 x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const D64 d;
  const hn::RebindToUnsigned<D64> du;
  const auto constant = [&](double value) HWY_ATTR { return hn::Set(d, value); };
  // Adding 1.5·2^52 rounds to an integer and leaves it in the low bits.
  const V64 magic = constant(6755399441055744.0);
  const V64 shifted = hn::MulAdd(x, constant(0.63661977236758134), magic);
  const V64 quarters = hn::Sub(shifted, magic);
  V64 r = hn::NegMulAdd(quarters, constant(1.5707963267948966), x);
  r = hn::NegMulAdd(quarters, constant(6.123233995736766e-17), r);  // the rest of π/2

  const V64 r2 = hn::Mul(r, r);
  V64 s = constant(1.0 / 362880);
  s = hn::MulAdd(s, r2, constant(-1.0 / 5040));
  s = hn::MulAdd(s, r2, constant(1.0 / 120));
  s = hn::MulAdd(s, r2, constant(-1.0 / 6));
  s = hn::MulAdd(hn::Mul(s, r2), r, r);
  V64 c = constant(-1.0 / 3628800);
  c = hn::MulAdd(c, r2, constant(1.0 / 40320));
  c = hn::MulAdd(c, r2, constant(-1.0 / 720));
  c = hn::MulAdd(c, r2, constant(1.0 / 24));
  c = hn::MulAdd(c, r2, constant(-0.5));
  c = hn::MulAdd(c, r2, constant(1.0));

  const auto quadrant = hn::BitCast(du, shifted);
  const auto odd = hn::RebindMask(d, hn::TestBit(quadrant, hn::Set(du, 1)));
  const auto sign_bit = [&](const auto& number) HWY_ATTR {  // bit 1 of the number, as the sign of a double
    return hn::BitCast(d, hn::ShiftLeft<62>(hn::And(number, hn::Set(du, 2))));
  };
  const auto sin_sign = sign_bit(quadrant);
  const auto cos_sign = sign_bit(hn::Add(quadrant, hn::Set(du, 1)));
  return {hn::Xor(hn::IfThenElse(odd, c, s), sin_sign), hn::Xor(hn::IfThenElse(odd, s, c), cos_sign)};
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
