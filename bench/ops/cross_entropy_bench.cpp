#include <string_view>
#include <utility>

#include "op_case.hpp"

namespace tigon::bench {

namespace {

constexpr std::string_view kInPlace = ":in_place";  // after a shape to be timed

struct CrossEntropyFlags {
  std::string text{};
  ops::CrossEntropyOptions options{};
  double ignored = 0.0;
  bool class_weight = false;
  bool token_scale = false;
  bool reports = false;   // z_loss, accuracy and predicted as well
  bool in_place = false;  // the gradient goes over the logits, in one call
};

OpCase cross_entropy_case(int64_t tokens, int64_t vocab, const CrossEntropyFlags& flags) {
  OpCase c;
  c.op = "cross_entropy";
  c.shape = std::to_string(tokens) + "x" + std::to_string(vocab);
  c.flags = flags.text;
  c.inputs = {
      {.name = "logits",
       .sizes = {tokens, vocab},
       .fill = {.deviation = 2.0},
       .differentiable = !flags.in_place,
       .in_place = flags.in_place},
      {.name = "target", .sizes = {tokens}, .role = Role::index, .fill = {.limit = vocab, .ignored = flags.ignored}}};
  const Fill positive{.mean = 1.0, .deviation = 0.2};
  if (flags.class_weight) {
    c.inputs.push_back({.name = "class_weight", .sizes = {vocab}, .role = Role::statistic, .fill = positive});
  }
  if (flags.token_scale) {
    c.inputs.push_back({.name = "token_scale", .sizes = {tokens}, .role = Role::statistic, .fill = positive});
  }
  const int64_t losses = flags.options.reduction == ops::Reduction::none ? tokens : 1;
  c.outputs = {{.name = "loss", .sizes = {losses}, .role = Role::statistic, .differentiable = true},
               {.name = "lse", .sizes = {tokens}, .role = Role::statistic}};
  if (flags.reports) {
    c.outputs.push_back({.name = "z_loss", .sizes = {losses}, .role = Role::statistic});
    c.outputs.push_back({.name = "accuracy", .sizes = {losses}, .role = Role::statistic});
    c.outputs.push_back({.name = "predicted", .sizes = {tokens}, .role = Role::index});
  }
  c.arithmetic_tolerance = 16.0;
  const auto forward_args = [options = flags.options](const Tensors& t) {
    return ops::CrossEntropyForward{.logits = t["logits"],
                                    .target = t["target"],
                                    .class_weight = t["class_weight"],
                                    .token_scale = t["token_scale"],
                                    .options = options,
                                    .out = {.loss = t["loss"],
                                            .z_loss = t["z_loss"],
                                            .accuracy = t["accuracy"],
                                            .predicted = t["predicted"],
                                            .lse = t["lse"]}};
  };
  const auto backward_args = [options = flags.options](const Tensors& t) {
    return ops::CrossEntropyBackward{.dloss = t["dloss"],
                                     .logits = t["logits"],
                                     .target = t["target"],
                                     .class_weight = t["class_weight"],
                                     .token_scale = t["token_scale"],
                                     .lse = t["lse"],
                                     .options = options,
                                     .dlogits = t["dlogits"]};
  };
  c.backward_work = [=](int64_t size) { return Work{.bytes = 2 * size * tokens * vocab + 12 * tokens}; };
  if (flags.in_place) {
    c.forward = [=](const Context& ctx, const Tensors& t) {
      ops::CrossEntropyForward args = forward_args(t);
      args.dlogits = args.logits;
      ops::cross_entropy_forward(ctx, args);
    };
    c.forward_work = std::exchange(c.backward_work, {});
    return c;
  }
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::cross_entropy_forward(ctx, forward_args(t)); };
  c.backward = [=](const Context& ctx, const Tensors& t) { ops::cross_entropy_backward(ctx, backward_args(t)); };
  c.full = [=](const Context& ctx, const Tensors& t) {
    ops::CrossEntropyForward args = forward_args(t);
    args.dlogits = t["dlogits"];
    ops::cross_entropy_forward(ctx, args);
  };
  // The eager chain has no accuracy, and its mean over no tokens is 0/0.
  if (!flags.reports && flags.ignored < 1) {
    c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
      ops::unfused::cross_entropy_forward(ctx, forward_args(t), tape);
    };
    c.unfused_backward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
      ops::unfused::cross_entropy_backward(ctx, backward_args(t), tape);
    };
  }
  c.forward_work = [=](int64_t size) { return Work{.bytes = size * tokens * vocab + 12 * tokens}; };
  c.full_work = c.backward_work;
  return c;
}

std::vector<CrossEntropyFlags> every_flag() {
  using enum ops::Reduction;
  return {
      {.text = "some ignored", .ignored = 0.4},
      {.text = "all ignored", .ignored = 1.0, .reports = true},
      {.text = "all ignored, sum", .options = {.reduction = sum}, .ignored = 1.0},
      {.text = "sum", .options = {.reduction = sum}, .ignored = 0.2},
      {.text = "none", .options = {.reduction = none}, .ignored = 0.2},
      {.text = "smoothing", .options = {.label_smoothing = 0.1}, .ignored = 0.2},
      {.text = "z-loss", .options = {.z_loss = 0.01}, .ignored = 0.2},
      {.text = "softcap", .options = {.softcap = 3.0}, .ignored = 0.2},
      {.text = "class weights", .ignored = 0.2, .class_weight = true},
      {.text = "token scale", .ignored = 0.2, .token_scale = true},
      {.text = "reports", .options = {.z_loss = 0.01}, .ignored = 0.2, .reports = true},
      {.text = "reports, none", .options = {.z_loss = 0.01, .reduction = none}, .ignored = 0.2, .reports = true},
      {.text = "everything",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0},
       .ignored = 0.2,
       .class_weight = true,
       .token_scale = true},
      {.text = "in place", .ignored = 0.2, .in_place = true},
      {.text = "in place, everything",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0},
       .ignored = 0.2,
       .class_weight = true,
       .token_scale = true,
       .reports = true,
       .in_place = true},
      {.text = "everything, none",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0, .reduction = none},
       .ignored = 0.2,
       .class_weight = true,
       .token_scale = true,
       .reports = true},
  };
}

}  // namespace

OpTable cross_entropy_table() {
  OpTable table{.op = "cross_entropy", .shape_help = "NxV[:in_place]", .bench_shapes = {"4096x32000", "1024x128256"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const bool in_place = text.ends_with(kInPlace);
    const std::string numbers = in_place ? text.substr(0, text.size() - kInPlace.size()) : text;
    const auto n = parse_shape("cross_entropy", numbers, 2, help);
    OpCase c = cross_entropy_case(n[0], n[1], {.in_place = in_place});
    if (in_place) c.shape += kInPlace;
    return c;
  };
  for (const auto& [tokens, vocab] : {std::pair{1, 1}, {1, 17}, {5, 1}, {3, 64}, {33, 100}, {6, 2500}}) {
    table.test_cases.push_back(cross_entropy_case(tokens, vocab, {}));
  }
  table.every_option = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("cross_entropy", text, 2, help);
    std::vector<OpCase> cases;
    for (const CrossEntropyFlags& f : every_flag()) cases.push_back(cross_entropy_case(n[0], n[1], f));
    return cases;
  };
  table.test_options_at("19x77");
  return table;
}

}  // namespace tigon::bench
