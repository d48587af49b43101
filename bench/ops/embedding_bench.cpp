#include "op_case.hpp"
#include "tigon/ops/embedding.hpp"

namespace tigon::bench {

namespace {

OpCase embedding_case(int64_t tokens, int64_t vocab, int64_t hidden, double scale, const std::string& flags) {
  OpCase c;
  c.op = "embedding";
  c.shape = std::to_string(tokens) + "x" + std::to_string(vocab) + "x" + std::to_string(hidden);
  c.flags = flags;
  c.inputs = {{.name = "ids", .sizes = {tokens}, .role = Role::index, .fill = {.limit = vocab}},
              {.name = "weight", .sizes = {vocab, hidden}, .differentiable = true}};
  c.outputs = {{.name = "y", .sizes = {tokens, hidden}, .differentiable = true}};
  c.forward = [=](const Context& ctx, const Tensors& t) {
    ops::embedding_forward(ctx, {.ids = t["ids"], .weight = t["weight"], .y = t["y"], .scale = scale});
  };
  c.backward = [=](const Context& ctx, const Tensors& t) {
    ops::embedding_backward(ctx, {.ids = t["ids"], .dy = t["dy"], .dweight = t["dweight"], .scale = scale});
  };
  c.forward_work = [=](int64_t size) { return Work{.bytes = tokens * (8 + 2 * size * hidden)}; };
  c.backward_work = [=](int64_t size) { return Work{.bytes = tokens * (8 + size * hidden) + vocab * size * hidden}; };
  return c;
}

}  // namespace

OpTable embedding_table() {
  OpTable table{.op = "embedding", .shape_help = "TOKENSxVxHIDDEN", .bench_shapes = {"8192x32000x2048"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("embedding", text, 3, help);
    return embedding_case(n[0], n[1], n[2], 1.0, "");
  };
  table.test_cases = {
      embedding_case(1, 1, 1, 1.0, ""),      embedding_case(7, 3, 17, 1.0, ""),
      embedding_case(40, 1000, 64, 1.0, ""), embedding_case(100, 1, 5, 1.0, "one row"),
      embedding_case(9, 50, 1, 1.0, ""),     embedding_case(33, 21, 2050, 1.0, ""),
  };
  table.every_option = [help = table.shape_help](const std::string& text) -> std::vector<OpCase> {
    const auto n = parse_shape("embedding", text, 3, help);
    return {embedding_case(n[0], n[1], n[2], 6.5, "scale")};
  };
  table.test_options_at("12x10x48");
  return table;
}

}  // namespace tigon::bench
