#include "backend/reference/gated.hpp"

namespace tigon::reference {

void swiglu_forward(const Context& ctx, const ops::SwigluForward& args) { gated_forward(ctx, args, silu); }

void swiglu_backward(const Context& ctx, const ops::SwigluBackward& args) { gated_backward(ctx, args, silu); }

}  // namespace tigon::reference
