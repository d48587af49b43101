#include "ops/unfused/chain.hpp"
#include "tigon/ops/linear.hpp"

namespace tigon::ops::unfused {

// The eager pair: linear, whose [tokens, V] logits stay, then cross_entropy. The logits end the tape.
void fused_linear_cross_entropy_forward(const Context& ctx, const FusedLinearCrossEntropyForward& args, Tape& tape) {
  const Chain chain(ctx);
  OwnedTensor logits = chain.make("logits", args.x.dtype, {args.x.sizes[0], args.weight.sizes[0]});
  linear_forward(ctx, {.x = args.x, .weight = args.weight, .bias = args.bias, .y = logits});
  cross_entropy_forward(ctx,
                        {.logits = logits,
                         .target = args.target,
                         .class_weight = args.class_weight,
                         .token_scale = args.token_scale,
                         .options = args.options,
                         .out = args.out},
                        tape);
  tape.push_back(std::move(logits));
}

void fused_linear_cross_entropy_backward(const Context& ctx, const FusedLinearCrossEntropyForward& args, Tape& tape) {
  const Chain chain(ctx);
  const OwnedTensor logits = std::move(tape.back());
  tape.pop_back();
  const OwnedTensor dlogits = chain.like("dlogits", logits, args.x.dtype);
  cross_entropy_backward(ctx,
                         {.dloss = args.dloss,
                          .logits = logits,
                          .target = args.target,
                          .class_weight = args.class_weight,
                          .token_scale = args.token_scale,
                          .options = args.options,
                          .dlogits = dlogits},
                         tape);
  linear_backward(ctx, {.dy = dlogits,
                        .x = args.x,
                        .weight = args.weight,
                        .dx = args.dx,
                        .dweight = args.dweight,
                        .dbias = args.dbias,
                        .accumulate_dweight = args.accumulate_dweight});
}

}  // namespace tigon::ops::unfused
