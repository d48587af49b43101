#include <cmath>

#include "op_case.hpp"
#include "tigon/core/error.hpp"

namespace tigon::bench {

namespace {

struct Flags {
  std::string text{};
  ops::CrossEntropyOptions options{};
  ops::ChunkRule chunk{};
  double ignored = 0.0;
  bool bias = false;
  bool class_weight = false;
  bool token_scale = false;
  bool reports = false;  // z_loss, accuracy and predicted as well
  bool wide_dweight = false;
  bool panels = false;  // the op sees panels of the weight and its gradient alone
};

class Slices final : public ops::WeightPanels {
 public:
  Slices(const Tensor& weight, const Tensor& dweight) : weight_(weight), dweight_(dweight) {}
  Tensor weight(const Context&, ops::Classes now, ops::Classes) override {
    return weight_.slice(0, now.begin, now.end);
  }
  Tensor dweight(const Context&, ops::Classes now, ops::Classes) override {
    return dweight_.slice(0, now.begin, now.end);
  }
  void written(const Context&, ops::Classes) override {}

 private:
  Tensor weight_, dweight_;
};

OpCase flce_case(int64_t tokens, int64_t hidden, int64_t vocab, const Flags& flags) {
  OpCase c;
  c.op = "fused_linear_cross_entropy";
  c.shape = std::to_string(tokens) + "x" + std::to_string(hidden) + "x" + std::to_string(vocab);
  c.flags = flags.text;
  c.inputs = {
      {.name = "x", .sizes = {tokens, hidden}, .differentiable = true},
      {.name = "weight",
       .sizes = {vocab, hidden},
       .fill = {.deviation = 1.0 / std::sqrt(static_cast<double>(hidden))},
       .differentiable = true,
       .wide_gradient = flags.wide_dweight},
      {.name = "target", .sizes = {tokens}, .role = Role::index, .fill = {.limit = vocab, .ignored = flags.ignored}}};
  if (flags.bias) {
    c.inputs.push_back({.name = "bias", .sizes = {vocab}, .fill = {.deviation = 0.5}, .differentiable = true});
  }
  const Fill positive{.mean = 1.0, .deviation = 0.2};
  if (flags.class_weight) {
    c.inputs.push_back({.name = "class_weight", .sizes = {vocab}, .role = Role::statistic, .fill = positive});
  }
  if (flags.token_scale) {
    c.inputs.push_back({.name = "token_scale", .sizes = {tokens}, .role = Role::statistic, .fill = positive});
  }
  const int64_t losses = flags.options.reduction == ops::Reduction::none ? tokens : 1;
  c.outputs = {{.name = "loss", .sizes = {losses}, .role = Role::statistic, .differentiable = true}};
  if (flags.reports) {
    c.outputs.push_back({.name = "z_loss", .sizes = {losses}, .role = Role::statistic});
    c.outputs.push_back({.name = "accuracy", .sizes = {losses}, .role = Role::statistic});
    c.outputs.push_back({.name = "lse", .sizes = {tokens}, .role = Role::statistic});
    c.outputs.push_back({.name = "predicted", .sizes = {tokens}, .role = Role::index});
  }
  c.arithmetic_tolerance = 32.0;
  c.gpu_rounds = true;  // logits in the storage type
  const auto loss_args = [options = flags.options, chunk = flags.chunk](const Tensors& t) {
    return ops::FusedLinearCrossEntropyForward{.x = t["x"],
                                               .weight = t["weight"],
                                               .bias = t["bias"],
                                               .target = t["target"],
                                               .class_weight = t["class_weight"],
                                               .token_scale = t["token_scale"],
                                               .options = options,
                                               .chunk = chunk,
                                               .out = {.loss = t["loss"],
                                                       .z_loss = t["z_loss"],
                                                       .accuracy = t["accuracy"],
                                                       .predicted = t["predicted"],
                                                       .lse = t["lse"]}};
  };
  const auto full_args = [=](const Tensors& t) {
    ops::FusedLinearCrossEntropyForward args = loss_args(t);
    args.dx = t["dx"];
    args.dweight = t["dweight"];
    args.dbias = t["dbias"];
    return args;
  };
  const auto backward_args = [=](const Tensors& t) {
    ops::FusedLinearCrossEntropyForward args = full_args(t);
    args.dloss = t["dloss"];
    args.out = {};
    return args;
  };
  const auto run = [panels = flags.panels](const Context& ctx, ops::FusedLinearCrossEntropyForward args, auto* op) {
    Slices slices(args.weight, args.dweight);
    if (panels) {
      args.panels = &slices;
      args.weight.data = args.dweight.data = nullptr;
    }
    op(ctx, args);
  };
  c.forward = [=](const Context& ctx, const Tensors& t) {
    run(ctx, loss_args(t), ops::fused_linear_cross_entropy_forward);
  };
  c.backward = [=](const Context& ctx, const Tensors& t) {
    run(ctx, backward_args(t), ops::fused_linear_cross_entropy_backward);
  };
  c.full = [=](const Context& ctx, const Tensors& t) {
    run(ctx, full_args(t), ops::fused_linear_cross_entropy_forward);
  };
  // The eager chain has no accuracy, and its mean over no tokens is 0/0.
  if (!flags.reports && flags.ignored < 1) {
    c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
      ops::unfused::fused_linear_cross_entropy_forward(ctx, loss_args(t), tape);
    };
    c.unfused_backward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
      ops::unfused::fused_linear_cross_entropy_backward(ctx, backward_args(t), tape);
    };
    c.unfused_rounds = true;  // logits in the storage type
  }
  const int64_t flops = 2 * tokens * hidden * vocab;
  const int64_t elements = tokens * hidden + vocab * hidden;
  c.forward_work = [=](int64_t size) { return Work{.bytes = size * elements, .flops = flops}; };
  c.backward_work = [=](int64_t size) { return Work{.bytes = 2 * size * elements, .flops = 3 * flops}; };
  c.full_work = c.backward_work;
  return c;
}

// "4096x2048x128256", and after it what the call is to do otherwise: ":lean", ":liger", ":chunk=1024", ":f32dw"
// (dweight in f32), ":ignored=0.5" (a share of the tokens).
OpCase case_from(const std::string& text, const std::string& help) {
  const size_t colon = text.find(':');
  const auto n = parse_shape("fused_linear_cross_entropy", text.substr(0, colon), 3, help);
  Flags flags;
  for (size_t at = colon; at != std::string::npos;) {
    const size_t next = text.find(':', at + 1);
    const std::string option = text.substr(at + 1, next == std::string::npos ? next : next - at - 1);
    try {
      if (option == "lean") {
        flags.chunk.lean = true;
      } else if (option == "liger") {
        flags.chunk.liger = true;
      } else if (option == "f32dw") {
        flags.wide_dweight = true;
      } else if (option.starts_with("chunk=")) {
        flags.chunk.tokens = std::stoll(option.substr(6));
      } else if (option.starts_with("ignored=")) {
        flags.ignored = std::stod(option.substr(8));
      } else {
        throw std::invalid_argument(option);
      }
    } catch (const std::logic_error&) {
      throw Error(ErrorCode::invalid_argument, {.where = "fused_linear_cross_entropy",
                                                .what = "the shape has an option that is not known",
                                                .expected = help,
                                                .got = option});
    }
    at = next;
  }
  OpCase c = flce_case(n[0], n[1], n[2], flags);
  if (colon != std::string::npos) c.shape += text.substr(colon);
  return c;
}

// What makes sense at any size.
std::vector<Flags> every_flag() {
  using enum ops::Reduction;
  return {
      {.text = "some ignored", .ignored = 0.4},
      {.text = "all ignored", .ignored = 1.0, .bias = true, .reports = true},
      {.text = "lean", .chunk = {.lean = true}, .ignored = 0.2},
      {.text = "sum", .options = {.reduction = sum}, .ignored = 0.2},
      {.text = "none", .options = {.reduction = none}, .ignored = 0.2},
      {.text = "smoothing", .options = {.label_smoothing = 0.1}, .ignored = 0.2},
      {.text = "z-loss", .options = {.z_loss = 0.01}, .ignored = 0.2},
      {.text = "softcap", .options = {.softcap = 3.0}, .ignored = 0.2},
      {.text = "bias", .ignored = 0.2, .bias = true},
      {.text = "class weights", .ignored = 0.2, .class_weight = true},
      {.text = "token scale", .ignored = 0.2, .token_scale = true},
      {.text = "reports", .options = {.z_loss = 0.01}, .ignored = 0.2, .reports = true},
      {.text = "everything",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0},
       .ignored = 0.2,
       .bias = true,
       .class_weight = true,
       .token_scale = true},
      {.text = "everything, none",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0, .reduction = none},
       .ignored = 0.2,
       .bias = true,
       .class_weight = true,
       .token_scale = true,
       .reports = true},
      {.text = "panels", .chunk = {.lean = true}, .ignored = 0.2, .panels = true},
      {.text = "everything, lean",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0},
       .chunk = {.lean = true},
       .ignored = 0.2,
       .bias = true,
       .class_weight = true,
       .token_scale = true,
       .reports = true},
  };
}

// Chunks and panels as small as the small cases.
std::vector<Flags> small_chunks() {
  using enum ops::Reduction;
  return {
      {.text = "chunks of 4", .chunk = {.tokens = 4}},
      {.text = "chunks of 1, bias", .chunk = {.tokens = 1}, .bias = true},
      {.text = "budget", .chunk = {.budget_bytes = 2000}, .ignored = 0.2},
      {.text = "liger's chunks", .chunk = {.liger = true}, .ignored = 0.2},
      {.text = "some ignored, chunks of 4", .chunk = {.tokens = 4}, .ignored = 0.4, .bias = true},
      {.text = "all ignored, chunks of 4", .chunk = {.tokens = 4}, .ignored = 1.0, .bias = true, .reports = true},
      {.text = "f32 dweight, chunks of 4", .chunk = {.tokens = 4}, .ignored = 0.2, .wide_dweight = true},
      {.text = "lean, panels of 4 x 10, bias",
       .chunk = {.tokens = 4, .budget_bytes = 160, .lean = true},
       .ignored = 0.2,
       .bias = true},
      {.text = "none, chunks of 4", .options = {.reduction = none}, .chunk = {.tokens = 4}, .ignored = 0.2},
      {.text = "everything, chunks of 5",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0},
       .chunk = {.tokens = 5},
       .ignored = 0.2,
       .bias = true,
       .class_weight = true,
       .token_scale = true},
      {.text = "everything, none, chunks of 5",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0, .reduction = none},
       .chunk = {.tokens = 5},
       .ignored = 0.2,
       .bias = true,
       .class_weight = true,
       .token_scale = true,
       .reports = true},
      {.text = "all ignored, panels from outside",
       .chunk = {.budget_bytes = 320, .lean = true},
       .ignored = 1.0,
       .bias = true,
       .reports = true,
       .panels = true},
      {.text = "f32 dweight, panels from outside",
       .chunk = {.budget_bytes = 320, .lean = true},
       .ignored = 0.2,
       .wide_dweight = true,
       .panels = true},
      {.text = "everything, panels from outside",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0},
       .chunk = {.budget_bytes = 320, .lean = true},
       .ignored = 0.2,
       .bias = true,
       .class_weight = true,
       .token_scale = true,
       .reports = true,
       .panels = true},
      {.text = "everything, lean, panels of 5 x 16",
       .options = {.label_smoothing = 0.1, .z_loss = 0.01, .softcap = 5.0},
       .chunk = {.tokens = 5, .budget_bytes = 320, .lean = true},
       .ignored = 0.2,
       .bias = true,
       .class_weight = true,
       .token_scale = true,
       .reports = true},
  };
}

}  // namespace

OpTable fused_linear_cross_entropy_table() {
  OpTable table{.op = "fused_linear_cross_entropy",
                .shape_help = "NxHxV[:lean|:liger|:chunk=N|:f32dw|:ignored=SHARE]",
                .bench_shapes = {"1024x768x32000", "512x2048x128256"}};
  table.make = [help = table.shape_help](const std::string& text) { return case_from(text, help); };
  for (const auto& [tokens, hidden, vocab] : {std::tuple{1, 1, 1}, {1, 5, 17}, {5, 3, 1}, {3, 16, 64}, {33, 20, 100}}) {
    table.test_cases.push_back(flce_case(tokens, hidden, vocab, {}));
  }
  table.every_option = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("fused_linear_cross_entropy", text, 3, help);
    std::vector<OpCase> cases;
    for (const Flags& f : every_flag()) cases.push_back(flce_case(n[0], n[1], n[2], f));
    return cases;
  };
  table.test_options_at("19x12x77");
  for (const Flags& f : small_chunks()) table.test_cases.push_back(flce_case(19, 12, 77, f));
  return table;
}

}  // namespace tigon::bench
