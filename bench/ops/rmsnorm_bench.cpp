#include "op_case.hpp"

namespace tigon::bench {

namespace {

OpCase rmsnorm_case(int64_t tokens, int64_t hidden, ops::NormCasting casting, double offset, bool with_weight,
                    const std::string& flags) {
  OpCase c;
  c.op = "rmsnorm";
  c.shape = std::to_string(tokens) + "x" + std::to_string(hidden);
  c.flags = flags;
  c.inputs = {{.name = "x", .sizes = {tokens, hidden}, .differentiable = true}};
  if (with_weight) {
    c.inputs.push_back({.name = "weight",
                        .sizes = {hidden},
                        .fill = {.mean = 1.0 - offset, .deviation = 0.3},
                        .differentiable = true});
  }
  c.outputs = {{.name = "y", .sizes = {tokens, hidden}, .differentiable = true},
               {.name = "rstd", .sizes = {tokens}, .role = Role::statistic}};
  const auto forward_args = [=](const Tensors& t) {
    return ops::RmsnormForward{.x = t["x"],
                               .weight = t["weight"],
                               .y = t["y"],
                               .rstd = t["rstd"],
                               .eps = 1e-5,
                               .offset = offset,
                               .casting = casting};
  };
  const auto backward_args = [=](const Tensors& t) {
    return ops::RmsnormBackward{.dy = t["dy"],
                                .x = t["x"],
                                .weight = t["weight"],
                                .rstd = t["rstd"],
                                .dx = t["dx"],
                                .dweight = t["dweight"],
                                .offset = offset,
                                .casting = casting};
  };
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::rmsnorm_forward(ctx, forward_args(t)); };
  c.backward = [=](const Context& ctx, const Tensors& t) { ops::rmsnorm_backward(ctx, backward_args(t)); };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    ops::unfused::rmsnorm_forward(ctx, forward_args(t), tape);
  };
  c.unfused_backward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    ops::unfused::rmsnorm_backward(ctx, backward_args(t), tape);
  };
  c.forward_work = [=](int64_t size) { return Work{.bytes = 2 * size * tokens * hidden + 4 * tokens}; };
  c.backward_work = [=](int64_t size) { return Work{.bytes = 3 * size * tokens * hidden + 4 * tokens}; };
  return c;
}

}  // namespace

OpTable rmsnorm_table() {
  using enum ops::NormCasting;
  OpTable table{.op = "rmsnorm", .shape_help = "TOKENSxHIDDEN", .bench_shapes = {"16384x2048"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("rmsnorm", text, 2, help);
    return rmsnorm_case(n[0], n[1], llama, 0.0, true, "");
  };
  for (const auto& [tokens, hidden] : {std::pair{1, 1}, {1, 17}, {3, 64}, {17, 1}, {33, 100}, {70, 2049}}) {
    table.test_cases.push_back(rmsnorm_case(tokens, hidden, llama, 0.0, true, ""));
  }
  table.every_option = [help = table.shape_help](const std::string& text) -> std::vector<OpCase> {
    const auto n = parse_shape("rmsnorm", text, 2, help);
    return {rmsnorm_case(n[0], n[1], gemma, 1.0, true, "gemma offset 1"),
            rmsnorm_case(n[0], n[1], none, 0.0, true, "casting none"),
            rmsnorm_case(n[0], n[1], llama, 0.0, false, "no weight")};
  };
  table.test_options_at("9x48");
  return table;
}

}  // namespace tigon::bench
