#include <algorithm>
#include <cmath>

#include "op_case.hpp"
#include "tigon/ops/linear.hpp"

namespace tigon::bench {

namespace {

OpCase linear_case(int64_t tokens, int64_t in, int64_t out, bool with_bias, const std::string& flags) {
  OpCase c;
  c.op = "linear";
  c.shape = std::to_string(tokens) + "x" + std::to_string(in) + "x" + std::to_string(out);
  c.flags = flags;
  c.inputs = {{.name = "x", .sizes = {tokens, in}, .differentiable = true},
              {.name = "weight", .sizes = {out, in}, .fill = {.deviation = 0.2}, .differentiable = true}};
  if (with_bias) c.inputs.push_back({.name = "bias", .sizes = {out}, .differentiable = true});
  c.outputs = {{.name = "y", .sizes = {tokens, out}, .differentiable = true}};
  // A sum in f32 loses about √terms units when it runs in order, as in oneDNN's portable GEMM, the one on AArch64.
  c.arithmetic_tolerance = std::max(16.0, std::sqrt(static_cast<double>(std::max({tokens, in, out}))));
  c.forward = [](const Context& ctx, const Tensors& t) {
    ops::linear_forward(ctx, {.x = t["x"], .weight = t["weight"], .bias = t["bias"], .y = t["y"]});
  };
  c.backward = [](const Context& ctx, const Tensors& t) {
    ops::linear_backward(ctx, {.dy = t["dy"],
                               .x = t["x"],
                               .weight = t["weight"],
                               .dx = t["dx"],
                               .dweight = t["dweight"],
                               .dbias = t["dbias"]});
  };
  const int64_t flops = 2 * tokens * in * out;
  const int64_t elements = tokens * in + in * out + tokens * out;
  c.forward_work = [=](int64_t size) { return Work{.bytes = size * elements, .flops = flops}; };
  c.backward_work = [=](int64_t size) {
    return Work{.bytes = size * (elements + tokens * in + in * out), .flops = 2 * flops};
  };
  return c;
}

// On top of what y has.
OpCase added_case(int64_t tokens, int64_t in, int64_t out) {
  OpCase c = linear_case(tokens, in, out, false, "added");
  c.inputs.push_back({.name = "y", .sizes = {tokens, out}, .in_place = true});
  for (auto& input : c.inputs) input.differentiable = false;
  c.outputs.clear();
  c.forward = [](const Context& ctx, const Tensors& t) {
    ops::linear_forward(ctx, {.x = t["x"], .weight = t["weight"], .y = t["y"], .accumulate_y = true});
  };
  c.backward = nullptr;
  return c;
}

}  // namespace

OpTable linear_table() {
  OpTable table{.op = "linear", .shape_help = "TOKENSxINxOUT", .bench_shapes = {"2048x2048x2048", "512x768x32000"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("linear", text, 3, help);
    return linear_case(n[0], n[1], n[2], false, "");
  };
  table.every_option = [help = table.shape_help](const std::string& text) -> std::vector<OpCase> {
    const auto n = parse_shape("linear", text, 3, help);
    return {linear_case(n[0], n[1], n[2], true, "bias"), added_case(n[0], n[1], n[2])};
  };
  for (const char* shape : {"1x1x1", "1x17x5", "3x64x33", "17x1x9", "33x100x70"}) {
    table.test_cases.push_back(table.make(shape));
    table.test_options_at(shape);
  }
  // More than one tile each way, and sums long enough to be shared out (dx over out, dweight over tokens).
  table.test_cases.push_back(linear_case(150, 40, 300, true, "several tiles"));
  table.test_cases.push_back(linear_case(5, 4200, 7, true, "long sum"));
  // An adapter's: few terms, many outputs.
  table.test_cases.push_back(added_case(150, 8, 300));
  table.test_cases.push_back(added_case(5, 4200, 7));
  table.test_cases.push_back(linear_case(3, 7, 4200, false, "long sum over outputs"));
  return table;
}

}  // namespace tigon::bench
