#include "op_case.hpp"

namespace tigon::bench {

namespace {

OpCase global_norm_case(const std::vector<int64_t>& sizes, double max_norm, double scale, const std::string& flags) {
  OpCase c;
  c.op = "global_norm";
  c.flags = flags;
  int64_t elements = 0;
  for (const int64_t size : sizes) {
    c.inputs.push_back({.name = "x" + std::to_string(c.inputs.size()), .sizes = {size}});
    c.shape += (c.shape.empty() ? "" : "+") + std::to_string(size);
    elements += size;
  }
  c.outputs = {{.name = "norm", .sizes = {1}, .role = Role::statistic},
               {.name = "clip", .sizes = {1}, .role = Role::statistic}};
  const auto with_args = [=](const Tensors& t, const auto& call) {
    std::vector<Tensor> list;
    for (size_t i = 0; i < sizes.size(); ++i) list.push_back(t["x" + std::to_string(i)]);
    call(ops::GlobalNorm{.tensors = list, .norm = t["norm"], .clip = t["clip"], .max_norm = max_norm, .scale = scale});
  };
  c.forward = [=](const Context& ctx, const Tensors& t) {
    with_args(t, [&](const ops::GlobalNorm& args) { ops::global_norm(ctx, args); });
  };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape&) {
    with_args(t, [&](const ops::GlobalNorm& args) { ops::unfused::global_norm(ctx, args); });
  };
  c.forward_work = [=](int64_t size) { return Work{.bytes = elements * size}; };
  c.arithmetic_tolerance = 64.0;
  return c;
}

}  // namespace

OpTable global_norm_table() {
  OpTable table{.op = "global_norm", .shape_help = "N", .bench_shapes = {"67108864"}};
  table.make = [help = table.shape_help](const std::string& text) {
    return global_norm_case({parse_shape("global_norm", text, 1, help)[0]}, 1.0, 1.0, "");
  };
  table.test_cases = {
      global_norm_case({1}, 1.0, 1.0, ""),
      global_norm_case({70000, 1, 4097, 65536}, 1.0, 1.0, ""),
      global_norm_case({1000, 33}, 1e6, 1.0, "not clipped"),
      global_norm_case({1000, 33}, 0.0, 1.0, "no max_norm"),
      global_norm_case({1000, 33}, 2.0, 0.125, "scale 1/8"),
      global_norm_case({}, 1.0, 1.0, "no tensors"),
  };
  return table;
}

}  // namespace tigon::bench
