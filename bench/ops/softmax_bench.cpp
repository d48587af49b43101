#include <cmath>

#include "op_case.hpp"

namespace tigon::bench {

namespace {

OpCase softmax_case(int64_t rows, int64_t columns, double scale, double deviation, const std::string& flags) {
  OpCase c;
  c.op = "softmax";
  c.shape = std::to_string(rows) + "x" + std::to_string(columns);
  c.flags = flags;
  c.inputs = {{.name = "x", .sizes = {rows, columns}, .fill = {.deviation = deviation}, .differentiable = true}};
  c.outputs = {{.name = "y", .sizes = {rows, columns}, .differentiable = true}};
  // dx has its own, and y's times the upstream gradient, of which some are beyond 4.
  c.roundings = 2 + static_cast<int>(4 * std::abs(scale));
  const auto forward_args = [=](const Tensors& t) {
    return ops::SoftmaxForward{.x = t["x"], .y = t["y"], .scale = scale};
  };
  const auto backward_args = [=](const Tensors& t) {
    return ops::SoftmaxBackward{.dy = t["dy"], .y = t["y"], .dx = t["dx"], .scale = scale};
  };
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::softmax_forward(ctx, forward_args(t)); };
  c.backward = [=](const Context& ctx, const Tensors& t) { ops::softmax_backward(ctx, backward_args(t)); };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape&) {
    ops::unfused::softmax_forward(ctx, forward_args(t));
  };
  c.unfused_backward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape&) {
    ops::unfused::softmax_backward(ctx, backward_args(t));
  };
  c.forward_work = [=](int64_t size) { return Work{.bytes = 2 * size * rows * columns}; };
  c.backward_work = [=](int64_t size) { return Work{.bytes = 3 * size * rows * columns}; };
  return c;
}

}  // namespace

OpTable softmax_table() {
  OpTable table{.op = "softmax", .shape_help = "ROWSxCOLUMNS", .bench_shapes = {"16384x2048"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("softmax", text, 2, help);
    return softmax_case(n[0], n[1], 1.0, 1.0, "");
  };
  for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 17}, {3, 64}, {17, 1}, {33, 100}, {21, 2049}}) {
    table.test_cases.push_back(softmax_case(rows, columns, 1.0, 1.0, ""));
  }
  table.every_option = [help = table.shape_help](const std::string& text) -> std::vector<OpCase> {
    const auto n = parse_shape("softmax", text, 2, help);
    OpCase negative = softmax_case(n[0], n[1], -2.0, 1.0, "negative scale");
    negative.cancelling = 0.25;  // dx is the difference of two such terms where one class has most of the weight
    return {softmax_case(n[0], n[1], 0.125, 8.0, "scale 1/8"), negative};
  };
  table.test_options_at("9x48");
  return table;
}

}  // namespace tigon::bench
