// geglu: swiglu's rows with either form of gelu.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/geglu.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/gated-inl.hpp"
#include "backend/cpu/gated.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

struct GeluTanh {
  TIGON_SIMD Activation operator()(V x) const { return gelu_tanh(x); }
};

struct GeluErf {
  TIGON_SIMD Activation operator()(V x) const { return gelu_erf(x); }
};

void GegluForwardRows(const ops::GegluForward& args, bool stream_out, int64_t begin, int64_t end) {
  if (args.gelu == ops::Gelu::tanh) return gated_forward_rows<GeluTanh>(args, stream_out, begin, end);
  gated_forward_rows<GeluErf>(args, stream_out, begin, end);
}

void GegluBackwardRows(const ops::GegluBackward& args, bool stream_out, int64_t begin, int64_t end) {
  if (args.gelu == ops::Gelu::tanh) return gated_backward_rows<GeluTanh>(args, stream_out, begin, end);
  gated_backward_rows<GeluErf>(args, stream_out, begin, end);
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(GegluForwardRows);
HWY_EXPORT(GegluBackwardRows);

void geglu_forward(const Context& ctx, const ops::GegluForward& args) {
  gated_forward(ctx, args, HWY_DYNAMIC_DISPATCH(GegluForwardRows));
}

void geglu_backward(const Context& ctx, const ops::GegluBackward& args) {
  gated_backward(ctx, args, HWY_DYNAMIC_DISPATCH(GegluBackwardRows));
}

}  // namespace tigon::cpu
#endif
