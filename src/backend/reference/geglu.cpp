#include "backend/reference/gated.hpp"

namespace tigon::reference {

void geglu_forward(const Context& ctx, const ops::GegluForward& args) {
  gated_forward(ctx, args, args.gelu == ops::Gelu::tanh ? gelu_tanh : gelu_erf);
}

void geglu_backward(const Context& ctx, const ops::GegluBackward& args) {
  gated_backward(ctx, args, args.gelu == ops::Gelu::tanh ? gelu_tanh : gelu_erf);
}

}  // namespace tigon::reference
