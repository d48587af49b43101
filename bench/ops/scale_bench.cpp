#include "op_case.hpp"

namespace tigon::bench {

namespace {

OpCase scale_case(int64_t n, double factor, const std::string& flags) {
  OpCase c;
  c.op = "scale";
  c.shape = std::to_string(n);
  c.flags = flags;
  c.inputs = {{.name = "x", .sizes = {n}, .in_place = true},
              {.name = "factor", .sizes = {1}, .role = Role::statistic, .fill = {.mean = factor, .deviation = 0.0}}};
  const auto args = [](const Tensors& t) { return ops::Scale{.x = t["x"], .factor = t["factor"]}; };
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::scale(ctx, args(t)); };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape&) {
    ops::unfused::scale(ctx, args(t));
  };
  c.forward_work = [=](int64_t size) { return Work{.bytes = 2 * n * size}; };
  return c;
}

}  // namespace

OpTable scale_table() {
  OpTable table{.op = "scale", .shape_help = "N", .bench_shapes = {"67108864"}};
  table.make = [help = table.shape_help](const std::string& text) {
    return scale_case(parse_shape("scale", text, 1, help)[0], 0.75, "");
  };
  for (const int64_t n : {1, 7, 1025, 70001}) table.test_cases.push_back(scale_case(n, 0.3, ""));
  table.test_cases.push_back(scale_case(1000, 1.0, "factor 1"));
  table.test_cases.push_back(scale_case(1000, 0.0, "factor 0"));
  table.test_cases.push_back(scale_case(1000, -1024.0, "factor -1024"));
  return table;
}

}  // namespace tigon::bench
