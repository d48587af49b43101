#include "ops/unfused/gated.hpp"

namespace tigon::ops::unfused {

void geglu_forward(const Context& ctx, const GegluForward& args, Tape& tape) {
  gated_forward(ctx, args, args.gelu == Gelu::tanh ? UnaryOp::gelu_tanh : UnaryOp::gelu_erf, tape);
}

void geglu_backward(const Context& ctx, const GegluBackward& args, Tape& tape) {
  gated_backward(ctx, args, args.gelu == Gelu::tanh ? BinaryOp::gelu_tanh_grad : BinaryOp::gelu_erf_grad, tape);
}

}  // namespace tigon::ops::unfused
