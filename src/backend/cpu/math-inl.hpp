// The transcendental functions of the ops, in f32 lanes.
#if defined(TIGON_CPU_MATH_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_MATH_INL_
#undef TIGON_CPU_MATH_INL_
#else
#define TIGON_CPU_MATH_INL_
#endif

#include <hwy/contrib/math/math-inl.h>

#include "backend/cpu/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// max(floor, x) and min(ceiling, x) where NaN in x stays NaN. Highway leaves that to the machine: x86 gives the second
// operand when either is NaN, NEON and plain C++ give the number.
TIGON_SIMD V at_least(V floor, V x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Max(floor, x);
#else
  return hn::IfThenElse(hn::Lt(x, floor), floor, x);
#endif
}
TIGON_SIMD V at_most(V ceiling, V x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Min(ceiling, x);
#else
  return hn::IfThenElse(hn::Gt(x, ceiling), ceiling, x);
#endif
}

// Adding it rounds a number below 2^22 to an integer and leaves that in the low bits: rounding and conversion at once.
constexpr float kRoundingMagic = 12582912.0f;  // 1.5·2^23

// 2^n for the integer n in the low bits of `shifted` = n + kRoundingMagic.
TIGON_SIMD V power_of_two(V shifted) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(D(), hn::ShiftLeft<23>(hn::Add(hn::BitCast(di, shifted), hn::Set(di, 127))));
}

// e^x for x <= 0, within 2 ulp (3 below −50); 0 below −87.7 (where f32 would go subnormal), NaN stays NaN. The softmax
// and the sigmoid need no other range, and the range saves the overflow handling. It holds in fact up to x = 88.
TIGON_SIMD V exp_nonpositive(V x) {
  const D d;
  const D32 d32;
  const V clamped = at_least(set(-88.0f), x);
  // e^x = 2^n·e^r with n = round(x/ln 2). Adding 1.5·2^23 rounds, and leaves n + 127, the exponent of 2^n, in the
  // lowest bits: no conversion to integer and back. At −88 that exponent is 0, and so is the result.
  const V magic = set(12582912.0f + 127.0f);
  const V shifted = hn::MulAdd(clamped, set(1.44269502f), magic);
  const V n = hn::Sub(shifted, magic);
  const V r = hn::NegMulAdd(n, set(0.693147182f), clamped);  // ln 2 is nearly a float: the error is 2e-9·n
  V p = set(0.00831250101f);                                 // e^r on ±½·ln 2, fitted for the least relative error
  p = hn::MulAdd(p, r, set(0.0418903306f));
  p = hn::MulAdd(p, r, set(0.166671157f));
  p = hn::MulAdd(p, r, set(0.499992311f));
  p = hn::MulAdd(p, r, set(1.0f));
  p = hn::MulAdd(p, r, set(1.0f));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(d32, shifted))));
}

// e^x and ln x for every x. Highway's own lose NaN and wrap around beyond the range of the result.
TIGON_SIMD V full_exp(V x) {
  const V inside = hn::Max(set(-104.0f), hn::Min(x, set(89.0f)));
  const V e = hn::IfThenElse(hn::Gt(x, set(88.72283f)), hn::Inf(D()), hn::Exp(D(), inside));
  return hn::IfThenElse(hn::IsNaN(x), x, e);
}
TIGON_SIMD V full_log(V x) {
  V y = hn::Log(D(), x);
  y = hn::IfThenElse(hn::Eq(x, zero()), hn::Neg(hn::Inf(D())), y);
  y = hn::IfThenElse(hn::Eq(x, hn::Inf(D())), x, y);
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Lt(x, zero())), hn::NaN(D()), y);
}

// 2^x for x <= 0, within 2 ulp; 0 below −126, NaN stays NaN. Cheaper than e^x, for exponents that are a product anyway
// and can take the factor log2(e) into a constant.
TIGON_SIMD V exp2_nonpositive(V x) {
  const V floor_x = set(-126.0f);
  const V clamped = at_least(floor_x, x);
  const V shifted = hn::Add(clamped, set(kRoundingMagic));
  const V r = hn::Sub(clamped, hn::Sub(shifted, set(kRoundingMagic)));
  V p = set(1.5345812e-4f);  // relative minimax fit on [−½, ½]
  p = hn::MulAdd(p, r, set(1.3399931e-3f));
  p = hn::MulAdd(p, r, set(9.6184890e-3f));
  p = hn::MulAdd(p, r, set(5.5503286e-2f));
  p = hn::MulAdd(p, r, set(2.4022646e-1f));
  p = hn::MulAdd(p, r, set(6.9314718e-1f));
  p = hn::MulAdd(p, r, set(1.0f));
  return hn::IfThenElse(hn::Lt(x, floor_x), zero(), hn::Mul(p, power_of_two(shifted)));
}

// --- activations: value and derivative ---

struct Activation {
  V value;
  V slope;
};

// σ(x) = 1 / (1 + e^−x) from e = e^−|x|. Both σ and 1 − σ come from the same quotient, so that neither tail nor the
// slope σ·(1 − σ) suffers from a subtraction.
TIGON_SIMD Activation sigmoid_from(V x, V e) {
  const V larger = hn::Div(set(1.0f), hn::Add(set(1.0f), e));
  const V smaller = hn::Mul(e, larger);
  return {hn::IfThenElse(hn::Lt(x, zero()), smaller, larger), hn::Mul(smaller, larger)};
}

TIGON_SIMD Activation sigmoid(V x) { return sigmoid_from(x, exp_nonpositive(hn::Neg(hn::Abs(x)))); }

TIGON_SIMD Activation silu(V x) {
  const Activation s = sigmoid(x);
  return {hn::Mul(x, s.value), hn::MulAdd(x, s.slope, s.value)};
}

// ½(1 + tanh u) is σ(2u), which loses nothing for large negative u; e^−2|u| is a power of two of a polynomial.
TIGON_SIMD Activation gelu_tanh(V x) {
  constexpr float kSlope = 1.5957691216f;  // 2√(2/π)
  constexpr float kLog2E = 1.4426950409f;
  const V x2 = hn::Mul(x, x);
  const V bits = hn::Mul(hn::Neg(hn::Abs(x)), hn::MulAdd(set(0.044715f * kSlope * kLog2E), x2, set(kSlope * kLog2E)));
  const Activation s = sigmoid_from(x, exp2_nonpositive(bits));
  // The square of 1e20 is infinite; s.slope is 0 long before.
  const V inner_slope = hn::MulAdd(set(0.134145f * kSlope), at_most(set(1e4f), x2), set(kSlope));
  return {hn::Mul(x, s.value), hn::MulAdd(x, hn::Mul(inner_slope, s.slope), s.value)};
}

// The normal distribution Φ(x) = ½(1 + erf(x/√2)) and its density, which share e^−x²/2: the tail is that times a
// polynomial in t = 1/(1 + 0.3·|x|/√2), a relative minimax fit with error 2e-8.
TIGON_SIMD Activation normal_cdf(V x) {
  const V z = at_most(set(14.0f), hn::Abs(x));  // Φ(−14) is 0; infinity would turn into NaN below
  const V z2 = hn::Mul(z, z);
  const V lost = hn::MulSub(z, z, z2);  // what rounding took from z², which the exponential would magnify
  V e = exp_nonpositive(hn::Mul(set(-0.5f), z2));
  e = hn::MulAdd(hn::Mul(e, set(-0.5f)), lost, e);
  const V t = hn::Div(set(1.0f), hn::MulAdd(set(0.21213203f), z, set(1.0f)));
  V p = set(-0.12940666f);
  p = hn::MulAdd(p, t, set(0.48495224f));
  p = hn::MulAdd(p, t, set(-0.51090109f));
  p = hn::MulAdd(p, t, set(0.54598457f));
  p = hn::MulAdd(p, t, set(-0.09331486f));
  p = hn::MulAdd(p, t, set(0.21428399f));
  p = hn::MulAdd(p, t, set(0.14852707f));
  p = hn::MulAdd(p, t, set(0.17068467f));
  p = hn::MulAdd(p, t, set(0.16919012f));
  const V tail = hn::Mul(hn::Mul(hn::Mul(set(0.5f), t), p), e);
  return {hn::IfThenElse(hn::Lt(x, zero()), tail, hn::Sub(set(1.0f), tail)), hn::Mul(set(0.39894228f), e)};
}

TIGON_SIMD Activation gelu_erf(V x) {
  const Activation normal = normal_cdf(x);
  return {hn::Mul(x, normal.value), hn::MulAdd(x, normal.slope, normal.value)};
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
