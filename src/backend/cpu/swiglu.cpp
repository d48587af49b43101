// swiglu: every element once; backward recomputes the activation instead of keeping it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/swiglu.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/gated-inl.hpp"
#include "backend/cpu/gated.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

struct Silu {
  TIGON_SIMD Activation operator()(V x) const { return silu(x); }
};

void SwigluForwardRows(const ops::SwigluForward& args, bool stream_out, int64_t begin, int64_t end) {
  gated_forward_rows<Silu>(args, stream_out, begin, end);
}

void SwigluBackwardRows(const ops::SwigluBackward& args, bool stream_out, int64_t begin, int64_t end) {
  gated_backward_rows<Silu>(args, stream_out, begin, end);
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(SwigluForwardRows);
HWY_EXPORT(SwigluBackwardRows);

void swiglu_forward(const Context& ctx, const ops::SwigluForward& args) {
  gated_forward(ctx, args, HWY_DYNAMIC_DISPATCH(SwigluForwardRows));
}

void swiglu_backward(const Context& ctx, const ops::SwigluBackward& args) {
  gated_backward(ctx, args, HWY_DYNAMIC_DISPATCH(SwigluBackwardRows));
}

}  // namespace tigon::cpu
#endif
