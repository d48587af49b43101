#include "op_case.hpp"

namespace tigon::bench {

namespace {

struct AdamwOptions {
  int64_t step = 7;
  double weight_decay = 0.1;
  double eps = 1e-8;
  bool with_scale = true;
  bool master = true;  // param in f32 with a copy in the storage type; else param itself in the storage type
  bool coded = false;  // states in 8 bits
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
  if (options.coded) {
    const int64_t blocks = (n + ops::kCodeBlock - 1) / ops::kCodeBlock;
    c.inputs[2] = {.name = "m", .sizes = {n}, .role = Role::code, .fill = {.limit = 256}, .in_place = true};
    c.inputs[3] = {.name = "v", .sizes = {n}, .role = Role::code, .fill = {.limit = 256}, .in_place = true};
    for (const char* scale : {"m_scale", "v_scale"}) {
      c.inputs.push_back({.name = scale,
                          .sizes = {blocks},
                          .role = Role::statistic,
                          .fill = {.mean = 1.0, .deviation = 0.1},
                          .in_place = true});
    }
  }
  const auto args = [=](const Tensors& t) {
    return ops::Adamw{.param = t["param"],
                      .grad = t["grad"],
                      .m = t["m"],
                      .v = t["v"],
                      .m_scale = t["m_scale"],
                      .v_scale = t["v_scale"],
                      .param_copy = t["param_copy"],
                      .grad_scale = t["grad_scale"],
                      .lr = 0.01,
                      .eps = options.eps,
                      .weight_decay = options.weight_decay,
                      .step = options.step};
  };
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::adamw(ctx, args(t)); };
  if (!options.coded) {
    c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape&) {
      ops::unfused::adamw(ctx, args(t));
    };
  }
  c.forward_work = [=](int64_t size) {
    // Read and written: param, m and v; read: grad; written: the copy.
    const int64_t states = options.coded ? 4 * n + 16 * ((n + ops::kCodeBlock - 1) / ops::kCodeBlock) : 16 * n;
    return Work{.bytes = states + n * (options.master ? 8 + 2 * size : 3 * size)};
  };
  return c;
}

}  // namespace

OpTable adamw_table() {
  OpTable table{.op = "adamw", .shape_help = "N[:8bit]", .bench_shapes = {"33554432", "33554432:8bit"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const bool coded = text.ends_with(":8bit");
    const std::string number = text.substr(0, text.size() - (coded ? 5 : 0));
    OpCase c = adamw_case(parse_shape("adamw", number, 1, help)[0], {.coded = coded}, coded ? "8-bit" : "");
    c.shape = text;
    return c;
  };
  table.every_option = [help = table.shape_help](const std::string& text) {
    const int64_t n = parse_shape("adamw", text, 1, help)[0];
    return std::vector<OpCase>{adamw_case(n, {}, ""), adamw_case(n, {.master = false}, "no master"),
                               adamw_case(n, {.coded = true}, "8-bit"),
                               adamw_case(n, {.master = false, .coded = true}, "8-bit no master")};
  };
  for (const int64_t n : {1, 17, 1024, 1025, 70000}) table.test_cases.push_back(adamw_case(n, {}, ""));
  table.test_cases.push_back(adamw_case(100, {.step = 1}, "step 1"));
  table.test_cases.push_back(adamw_case(100, {.step = 100000}, "step 100000"));
  table.test_cases.push_back(adamw_case(100, {.weight_decay = 0.0}, "no decay"));
  table.test_cases.push_back(adamw_case(100, {.with_scale = false}, "no grad_scale"));
  table.test_cases.push_back(adamw_case(100, {.eps = 0.1}, "eps 0.1"));
  table.test_cases.push_back(adamw_case(1100, {.master = false}, "no master"));
  for (const int64_t n : {1, 255, 256, 257, 1024, 1300, 70000})
    table.test_cases.push_back(adamw_case(n, {.coded = true}, "8-bit"));
  table.test_cases.push_back(adamw_case(1300, {.master = false, .coded = true}, "8-bit no master"));
  table.test_cases.push_back(adamw_case(600, {.with_scale = false, .coded = true}, "8-bit no grad_scale"));
  return table;
}

}  // namespace tigon::bench
