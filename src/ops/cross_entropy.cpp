#include "tigon/ops/cross_entropy.hpp"

#include "ops/check.hpp"
#include "ops/loss_check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

namespace {

template <class Args>
LossArguments check_common(const Check& check, const Args& args) {
  check.tensor("logits", args.logits, {-1, -1}, "[tokens, V]");
  check.floating("logits", args.logits);
  check.rows_contiguous("logits", args.logits);
  const int64_t tokens = args.logits.sizes[0], vocab = args.logits.sizes[1];
  check.optional("dlogits", args.dlogits, {tokens, vocab}, "as logits");
  check.same_dtype("dlogits", args.dlogits, "logits", args.logits);
  check.writable("dlogits", args.dlogits);
  check.apart("dlogits", args.dlogits, "logits", args.logits, true);
  check.apart("dlogits", args.dlogits, "target", args.target);
  check.apart("dlogits", args.dlogits, "class_weight", args.class_weight);
  check.apart("dlogits", args.dlogits, "token_scale", args.token_scale);
  const LossArguments loss{.tokens = tokens,
                           .vocab = vocab,
                           .like_name = "logits",
                           .like = args.logits,
                           .target = args.target,
                           .class_weight = args.class_weight,
                           .token_scale = args.token_scale,
                           .options = args.options};
  check_loss(check, loss);
  return loss;
}

}  // namespace

void cross_entropy_forward(const Context& ctx, const CrossEntropyForward& args) {
  const Check check("cross_entropy_forward", ctx);
  const LossArguments loss = check_common(check, args);
  check_loss_outputs(check, loss, args.out);
  for (const Tensor* out : {&args.out.loss, &args.out.z_loss, &args.out.accuracy, &args.out.predicted, &args.out.lse}) {
    check.apart("dlogits", args.dlogits, "an output", *out);
  }
  route(ctx, args, args.logits.dtype, &Backend::cross_entropy_forward, "cross_entropy_forward",
        {&args.dlogits, &args.out.loss, &args.out.z_loss, &args.out.accuracy, &args.out.predicted, &args.out.lse});
}

void cross_entropy_backward(const Context& ctx, const CrossEntropyBackward& args) {
  const Check check("cross_entropy_backward", ctx);
  const LossArguments loss = check_common(check, args);
  if (!args.dlogits) check.fail("'dlogits' is missing", "a tensor as logits");
  check_dloss(check, loss, args.dloss);
  check.tensor("lse", args.lse, {loss.tokens}, "one per token, from forward");
  check.statistic("lse", args.lse, args.logits);
  check.contiguous("lse", args.lse);
  check.apart("dlogits", args.dlogits, "dloss", args.dloss);
  check.apart("dlogits", args.dlogits, "lse", args.lse);
  route(ctx, args, args.logits.dtype, &Backend::cross_entropy_backward, "cross_entropy_backward", {&args.dlogits});
}

}  // namespace tigon::ops
