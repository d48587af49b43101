#include "op_case.hpp"

namespace tigon::bench {

namespace {

OpCase layernorm_case(int64_t tokens, int64_t hidden, bool with_weight, bool with_bias, const std::string& flags,
                      double mean = 0.0) {
  OpCase c;
  c.op = "layernorm";
  c.shape = std::to_string(tokens) + "x" + std::to_string(hidden);
  c.flags = flags;
  c.inputs = {{.name = "x", .sizes = {tokens, hidden}, .fill = {.mean = mean}, .differentiable = true}};
  if (with_weight) {
    c.inputs.push_back(
        {.name = "weight", .sizes = {hidden}, .fill = {.mean = 1.0, .deviation = 0.3}, .differentiable = true});
  }
  if (with_bias) {
    c.inputs.push_back({.name = "bias", .sizes = {hidden}, .fill = {.deviation = 0.3}, .differentiable = true});
  }
  c.outputs = {{.name = "y", .sizes = {tokens, hidden}, .differentiable = true},
               {.name = "mean", .sizes = {tokens}, .role = Role::statistic},
               {.name = "rstd", .sizes = {tokens}, .role = Role::statistic}};
  // A row of one element has variance 0 and gradient 0: what is left is rounding of m − mean(m), which a large eps
  // keeps from growing.
  const double eps = hidden == 1 ? 0.5 : 1e-5;
  c.arithmetic_tolerance = 16.0;  // the mean is a long sum that cancels
  if (hidden == 1) c.cancelling = 1.0;
  const auto forward_args = [=](const Tensors& t) {
    return ops::LayernormForward{.x = t["x"],
                                 .weight = t["weight"],
                                 .bias = t["bias"],
                                 .y = t["y"],
                                 .mean = t["mean"],
                                 .rstd = t["rstd"],
                                 .eps = eps};
  };
  const auto backward_args = [=](const Tensors& t) {
    return ops::LayernormBackward{.dy = t["dy"],
                                  .x = t["x"],
                                  .weight = t["weight"],
                                  .mean = t["mean"],
                                  .rstd = t["rstd"],
                                  .dx = t["dx"],
                                  .dweight = t["dweight"],
                                  .dbias = t["dbias"]};
  };
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::layernorm_forward(ctx, forward_args(t)); };
  c.backward = [=](const Context& ctx, const Tensors& t) { ops::layernorm_backward(ctx, backward_args(t)); };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    ops::unfused::layernorm_forward(ctx, forward_args(t), tape);
  };
  c.unfused_backward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    ops::unfused::layernorm_backward(ctx, backward_args(t), tape);
  };
  c.forward_work = [=](int64_t size) { return Work{.bytes = 2 * size * tokens * hidden + 8 * tokens}; };
  c.backward_work = [=](int64_t size) { return Work{.bytes = 3 * size * tokens * hidden + 8 * tokens}; };
  return c;
}

}  // namespace

OpTable layernorm_table() {
  OpTable table{.op = "layernorm", .shape_help = "TOKENSxHIDDEN", .bench_shapes = {"16384x2048"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("layernorm", text, 2, help);
    return layernorm_case(n[0], n[1], true, true, "");
  };
  for (const auto& [tokens, hidden] : {std::pair{1, 1}, {1, 17}, {3, 64}, {17, 1}, {33, 100}, {70, 2049}}) {
    table.test_cases.push_back(layernorm_case(tokens, hidden, true, true, ""));
  }
  table.every_option = [help = table.shape_help](const std::string& text) -> std::vector<OpCase> {
    const auto n = parse_shape("layernorm", text, 2, help);
    return {layernorm_case(n[0], n[1], true, false, "no bias"), layernorm_case(n[0], n[1], false, true, "no weight"),
            layernorm_case(n[0], n[1], false, false, "no weight no bias")};
  };
  table.test_options_at("9x48");
  return table;
}

}  // namespace tigon::bench
