#include "op_case.hpp"

namespace tigon::bench {

namespace {

struct AdamwOptions {
  int64_t step = 7;
  double weight_decay = 0.1;
  double eps = 1e-8;
  bool with_scale = true;
  bool master = true;  // param in f32 with a copy in the storage type; else param itself in the storage type
};

OpCase adamw_case(int64_t n, const AdamwOptions& options, const std::string& flags) {
  OpCase c;
  c.op = "adamw";
  c.shape = std::to_string(n);
  c.flags = flags;
  c.inputs = {
      {.name = "param", .sizes = {n}, .role = options.master ? Role::statistic : Role::storage, .in_place = true},
      {.name = "grad", .sizes = {n}},
      {.name = "m", .sizes = {n}, .role = Role::statistic, .fill = {.deviation = 0.5}, .in_place = true},
      // Far enough from zero that v never is negative.
      {.name = "v", .sizes = {n}, .role = Role::statistic, .fill = {.mean = 1.0, .deviation = 0.1}, .in_place = true}};
  if (options.master) c.outputs = {{.name = "param_copy", .sizes = {n}}};
  if (options.with_scale) {
    c.inputs.push_back(
        {.name = "grad_scale", .sizes = {1}, .role = Role::statistic, .fill = {.mean = 0.5, .deviation = 0.0}});
  }
  const auto args = [=](const Tensors& t) {
    return ops::Adamw{.param = t["param"],
                      .grad = t["grad"],
                      .m = t["m"],
                      .v = t["v"],
                      .param_copy = t["param_copy"],
                      .grad_scale = t["grad_scale"],
                      .lr = 0.01,
                      .eps = options.eps,
                      .weight_decay = options.weight_decay,
                      .step = options.step};
  };
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::adamw(ctx, args(t)); };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape&) {
    ops::unfused::adamw(ctx, args(t));
  };
  c.forward_work = [=](int64_t size) { return Work{.bytes = n * (options.master ? 24 + 2 * size : 16 + 3 * size)}; };
  return c;
}

}  // namespace

OpTable adamw_table() {
  OpTable table{.op = "adamw", .shape_help = "N", .bench_shapes = {"33554432"}};
  table.make = [help = table.shape_help](const std::string& text) {
    return adamw_case(parse_shape("adamw", text, 1, help)[0], {}, "");
  };
  for (const int64_t n : {1, 17, 1024, 1025, 70000}) table.test_cases.push_back(adamw_case(n, {}, ""));
  table.test_cases.push_back(adamw_case(100, {.step = 1}, "step 1"));
  table.test_cases.push_back(adamw_case(100, {.step = 100000}, "step 100000"));
  table.test_cases.push_back(adamw_case(100, {.weight_decay = 0.0}, "no decay"));
  table.test_cases.push_back(adamw_case(100, {.with_scale = false}, "no grad_scale"));
  table.test_cases.push_back(adamw_case(100, {.eps = 0.1}, "eps 0.1"));
  table.test_cases.push_back(adamw_case(1100, {.master = false}, "no master"));
  return table;
}

}  // namespace tigon::bench
