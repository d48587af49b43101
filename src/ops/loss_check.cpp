#include "ops/loss_check.hpp"

namespace tigon::ops {

void check_loss(const Check& check, const LossArguments& args) {
  if (args.vocab < 1) check.fail("there are no classes", "V of at least 1", std::to_string(args.vocab));
  check.known("reduction", args.options.reduction, Reduction::none);
  check.in_range("label_smoothing", args.options.label_smoothing, 0, 1);
  check.finite("z_loss", args.options.z_loss);
  // Its inverse must be an f32 too.
  if (args.options.softcap != 0) check.in_range("softcap", args.options.softcap, 1e-30, 1e30);
  check.optional("class_weight", args.class_weight, {args.vocab}, "one per class");
  check.statistic("class_weight", args.class_weight, args.like);
  check.contiguous("class_weight", args.class_weight);
  check.optional("token_scale", args.token_scale, {args.tokens}, "one per token");
  check.statistic("token_scale", args.token_scale, args.like);
  check.contiguous("token_scale", args.token_scale);
  check.tensor("target", args.target, {args.tokens}, "one per token");
  check.index("target", args.target);
  check.contiguous("target", args.target);
  check.indices_below("target", args.target, args.vocab, &args.options.ignore_index);
}

void check_loss_outputs(const Check& check, const LossArguments& args, const CrossEntropyOutputs& out) {
  const int64_t losses = args.options.reduction == Reduction::none ? args.tokens : 1;
  struct Output {
    const char* name;
    const Tensor& t;
    int64_t size;
  };
  const Output outputs[] = {{"loss", out.loss, losses},
                            {"z_loss", out.z_loss, losses},
                            {"accuracy", out.accuracy, losses},
                            {"lse", out.lse, args.tokens},
                            {"predicted", out.predicted, args.tokens}};
  for (const Output& o : outputs) {
    check.optional(o.name, o.t, {o.size}, o.size == 1 ? "one value" : "one per token");
    if (&o.t == &out.predicted) {
      check.index(o.name, o.t);
    } else {
      check.statistic(o.name, o.t, args.like);
    }
    check.contiguous(o.name, o.t);
    check.apart(o.name, o.t, "target", args.target);
    check.apart(o.name, o.t, "class_weight", args.class_weight);
    check.apart(o.name, o.t, "token_scale", args.token_scale);
    check.apart(o.name, o.t, args.like_name, args.like);
    for (const Output& other : outputs) {
      if (&other < &o) check.apart(o.name, o.t, other.name, other.t);
    }
  }
}

void check_dloss(const Check& check, const LossArguments& args, const Tensor& dloss) {
  check.tensor("dloss", dloss, {dloss.rank == 1 && dloss.sizes[0] == 1 ? 1 : args.tokens},
               "one value or one per token");
  check.statistic("dloss", dloss, args.like);
  check.contiguous("dloss", dloss);
}

}  // namespace tigon::ops
