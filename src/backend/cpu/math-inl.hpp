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

// e^x for x <= 0, within 2 ulp (3 below −50); 0 below −87.7 (where f32 would go subnormal), NaN stays NaN. The softmax
// and the sigmoid need no other range, and the range saves the overflow handling. It holds in fact up to x = 88.
TIGON_SIMD V exp_nonpositive(V x) {
  const D d;
  const D32 d32;
  const V clamped = hn::Max(set(-88.0f), x);  // this order keeps NaN on x86
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

// 1 / (1 + e^−x), accurate in both tails.
TIGON_SIMD V sigmoid(V x) {
  const V e = exp_nonpositive(hn::Neg(hn::Abs(x)));
  const V numerator = hn::IfThenElse(hn::Lt(x, zero()), e, set(1.0f));
  return hn::Div(numerator, hn::Add(set(1.0f), e));
}

// Φ(x) = ½(1 + erf(x/√2)), the normal distribution, by a Chebyshev fit of erfc (Numerical Recipes, fractional error
// below 1.2e-7).
TIGON_SIMD V normal_cdf(V x) {
  const V z = hn::Mul(hn::Abs(x), set(0.70710678f));
  const V t = hn::Div(set(1.0f), hn::MulAdd(set(0.5f), z, set(1.0f)));
  V p = set(0.17087277f);
  p = hn::MulAdd(p, t, set(-0.82215223f));
  p = hn::MulAdd(p, t, set(1.48851587f));
  p = hn::MulAdd(p, t, set(-1.13520398f));
  p = hn::MulAdd(p, t, set(0.27886807f));
  p = hn::MulAdd(p, t, set(-0.18628806f));
  p = hn::MulAdd(p, t, set(0.09678418f));
  p = hn::MulAdd(p, t, set(0.37409196f));
  p = hn::MulAdd(p, t, set(1.00002368f));
  p = hn::MulAdd(p, t, set(-1.26551223f));
  const V half_erfc = hn::Mul(hn::Mul(set(0.5f), t), exp_nonpositive(hn::Min(zero(), hn::NegMulAdd(z, z, p))));
  return hn::IfThenElse(hn::Lt(x, zero()), half_erfc, hn::Sub(set(1.0f), half_erfc));
}

// --- activations: value and derivative ---

struct Activation {
  V value;
  V slope;
};

TIGON_SIMD Activation silu(V x) {
  const V s = sigmoid(x);
  // s + x·s·(1 − s)
  return {hn::Mul(x, s), hn::MulAdd(hn::Mul(x, s), hn::Sub(set(1.0f), s), s)};
}

// ½(1 + tanh u) is sigmoid(2u), which loses nothing for large negative u.
TIGON_SIMD Activation gelu_tanh(V x) {
  const V x2 = hn::Mul(x, x);
  const V inner = hn::Mul(set(1.5957691216f), hn::Mul(x, hn::MulAdd(set(0.044715f), x2, set(1.0f))));  // 2u
  const V s = sigmoid(inner);
  const V inner_slope = hn::Mul(set(1.5957691216f), hn::MulAdd(set(0.134145f), x2, set(1.0f)));
  return {hn::Mul(x, s), hn::MulAdd(hn::Mul(hn::Mul(x, s), hn::Sub(set(1.0f), s)), inner_slope, s)};
}

TIGON_SIMD Activation gelu_erf(V x) {
  const V cdf = normal_cdf(x);
  const V density = hn::Mul(set(0.39894228f), exp_nonpositive(hn::Mul(set(-0.5f), hn::Mul(x, x))));
  return {hn::Mul(x, cdf), hn::MulAdd(x, density, cdf)};
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
