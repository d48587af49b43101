#include "op_case.hpp"

namespace tigon::bench {

namespace {

struct Options {
  ops::NormCasting casting = ops::NormCasting::llama;
  double offset = 0.0;
  bool weight = true;
  bool upstream = true;  // whether residual_out has a gradient of its own
};

OpCase add_rmsnorm_case(int64_t tokens, int64_t hidden, const Options& options, const std::string& flags) {
  OpCase c;
  c.op = "add_rmsnorm";
  c.shape = std::to_string(tokens) + "x" + std::to_string(hidden);
  c.flags = flags;
  // The gradients of x and residual are one array, dx; the case states it for x. The sum is rounded to the storage type
  // and the f32 rstd follows from it: comparing with an unrounded reference needs sums that are exact.
  c.inputs = {{.name = "x", .sizes = {tokens, hidden}, .fill = {.grid = 0.0625}, .differentiable = true},
              {.name = "residual", .sizes = {tokens, hidden}, .fill = {.grid = 0.0625}}};
  if (options.weight) {
    c.inputs.push_back({.name = "weight",
                        .sizes = {hidden},
                        .fill = {.mean = 1.0 - options.offset, .deviation = 0.3},
                        .differentiable = true});
  }
  c.outputs = {{.name = "residual_out", .sizes = {tokens, hidden}, .differentiable = options.upstream},
               {.name = "y", .sizes = {tokens, hidden}, .differentiable = true},
               {.name = "rstd", .sizes = {tokens}, .role = Role::statistic}};
  // A row of one element is its own norm: a large eps keeps its gradient from drowning in rounding.
  const double eps = hidden == 1 ? 0.5 : 1e-5;
  const auto forward_args = [=](const Tensors& t) {
    return ops::AddRmsnormForward{.x = t["x"],
                                  .residual = t["residual"],
                                  .weight = t["weight"],
                                  .residual_out = t["residual_out"],
                                  .y = t["y"],
                                  .rstd = t["rstd"],
                                  .eps = eps,
                                  .offset = options.offset,
                                  .casting = options.casting};
  };
  const auto backward_args = [=](const Tensors& t) {
    return ops::AddRmsnormBackward{.dy = t["dy"],
                                   .dresidual_out = t["dresidual_out"],
                                   .residual_out = t["residual_out"],
                                   .weight = t["weight"],
                                   .rstd = t["rstd"],
                                   .dx = t["dx"],
                                   .dweight = t["dweight"],
                                   .offset = options.offset,
                                   .casting = options.casting};
  };
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::add_rmsnorm_forward(ctx, forward_args(t)); };
  c.backward = [=](const Context& ctx, const Tensors& t) { ops::add_rmsnorm_backward(ctx, backward_args(t)); };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    ops::unfused::add_rmsnorm_forward(ctx, forward_args(t), tape);
  };
  c.unfused_backward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    ops::unfused::add_rmsnorm_backward(ctx, backward_args(t), tape);
  };
  c.forward_work = [=](int64_t size) { return Work{.bytes = 4 * size * tokens * hidden + 4 * tokens}; };
  c.backward_work = [=](int64_t size) { return Work{.bytes = 4 * size * tokens * hidden + 4 * tokens}; };
  return c;
}

}  // namespace

OpTable add_rmsnorm_table() {
  using enum ops::NormCasting;
  OpTable table{.op = "add_rmsnorm", .shape_help = "TOKENSxHIDDEN", .bench_shapes = {"16384x2048"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("add_rmsnorm", text, 2, help);
    return add_rmsnorm_case(n[0], n[1], {}, "");
  };
  for (const auto& [tokens, hidden] : {std::pair{1, 1}, {1, 17}, {3, 64}, {17, 1}, {33, 100}, {70, 2049}}) {
    table.test_cases.push_back(add_rmsnorm_case(tokens, hidden, {}, ""));
  }
  table.every_option = [help = table.shape_help](const std::string& text) -> std::vector<OpCase> {
    const auto n = parse_shape("add_rmsnorm", text, 2, help);
    return {add_rmsnorm_case(n[0], n[1], {.casting = gemma, .offset = 1.0}, "gemma offset 1"),
            add_rmsnorm_case(n[0], n[1], {.casting = none}, "casting none"),
            add_rmsnorm_case(n[0], n[1], {.weight = false}, "no weight"),
            add_rmsnorm_case(n[0], n[1], {.upstream = false}, "no dresidual_out")};
  };
  table.test_options_at("9x48");
  return table;
}

}  // namespace tigon::bench
