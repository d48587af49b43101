#include "ops/unfused/gated.hpp"

namespace tigon::ops::unfused {

void swiglu_forward(const Context& ctx, const SwigluForward& args, Tape& tape) {
  gated_forward(ctx, args, UnaryOp::silu, tape);
}

void swiglu_backward(const Context& ctx, const SwigluBackward& args, Tape& tape) {
  gated_backward(ctx, args, BinaryOp::silu_grad, tape);
}

}  // namespace tigon::ops::unfused
