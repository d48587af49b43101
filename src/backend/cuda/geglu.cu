#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/exponential.cuh"
#include "backend/cuda/gated.cuh"

namespace tigon::cuda {

namespace {

// ½(1 + tanh u) is σ(2u), which loses nothing for large negative u.
template <class>
struct GeluTanh {
  __device__ __forceinline__ Activation operator()(float x) const {
    constexpr float kSlope = 1.5957691216f;  // 2√(2/π)
    const float x2 = x * x;
    const float bits = -fabsf(x) * fmaf(0.044715f * kSlope * kLog2E, x2, kSlope * kLog2E);
    const Activation s = sigmoid_from(x, exp2f(bits));
    // The square of 1e20 is infinite; s.slope is 0 long before.
    const float inner_slope = fmaf(0.134145f * kSlope, fminf(x2, 1e4f), kSlope);
    return {x * s.value, fmaf(x, inner_slope * s.slope, s.value)};
  }
};

// The normal distribution Φ(x) = ½(1 + erf(x/√2)) and its density share e^−x²/2: the tail is that times a polynomial in
// t = 1/(1 + 0.3·|x|/√2), a relative minimax fit with error 2e-8.
template <class>
struct GeluErf {
  __device__ __forceinline__ Activation operator()(float x) const {
    const float magnitude = fabsf(x);
    const float z = magnitude > 15.0f ? 15.0f : magnitude;  // Φ(−15) is 0; NaN stays
    const float z2 = __fmul_rn(z, z);
    const float lost = fmaf(z, z, -z2);  // what rounding took from z², which the exponential would magnify
    float e = expf(-0.5f * z2);
    e = fmaf(-0.5f * e, lost, e);
    const float t = __fdividef(1.0f, fmaf(0.21213203f, z, 1.0f));
    float p = -0.12940666f;
    p = fmaf(p, t, 0.48495224f);
    p = fmaf(p, t, -0.51090109f);
    p = fmaf(p, t, 0.54598457f);
    p = fmaf(p, t, -0.09331486f);
    p = fmaf(p, t, 0.21428399f);
    p = fmaf(p, t, 0.14852707f);
    p = fmaf(p, t, 0.17068467f);
    p = fmaf(p, t, 0.16919012f);
    const float tail = 0.5f * t * p * e;
    const float cdf = x < 0.0f ? tail : 1.0f - tail;
    return {x * cdf, fmaf(x, 0.39894228f * e, cdf)};
  }
};

}  // namespace

void geglu_forward(const Context& ctx, const ops::GegluForward& args) {
  if (args.gelu == ops::Gelu::tanh) return gated_forward<GeluTanh>(ctx, args, "geglu_forward");
  gated_forward<GeluErf>(ctx, args, "geglu_forward");
}

void geglu_backward(const Context& ctx, const ops::GegluBackward& args) {
  if (args.gelu == ops::Gelu::tanh) return gated_backward<GeluTanh>(ctx, args, "geglu_backward");
  gated_backward<GeluErf>(ctx, args, "geglu_backward");
}

}  // namespace tigon::cuda
