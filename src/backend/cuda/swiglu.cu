#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/exponential.cuh"
#include "backend/cuda/gated.cuh"

namespace tigon::cuda {

namespace {

template <class T>
struct Silu {
  __device__ __forceinline__ Activation operator()(float x) const {
    const Activation s = sigmoid_from(x, exp_from<T>(-fabsf(x), 0.0f));
    return {x * s.value, fmaf(x, s.slope, s.value)};
  }
};

}  // namespace

void swiglu_forward(const Context& ctx, const ops::SwigluForward& args) {
  gated_forward<Silu>(ctx, args, "swiglu_forward");
}

void swiglu_backward(const Context& ctx, const ops::SwigluBackward& args) {
  gated_backward<Silu>(ctx, args, "swiglu_backward");
}

}  // namespace tigon::cuda
