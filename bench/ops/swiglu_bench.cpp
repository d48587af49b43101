#include "gated_case.hpp"

namespace tigon::bench {

namespace {

OpCase swiglu_case(int64_t tokens, int64_t columns, const GatedOptions& options, const std::string& flags) {
  const GatedCalls<ops::SwigluForward, ops::SwigluBackward> call{
      ops::swiglu_forward, ops::swiglu_backward, ops::unfused::swiglu_forward, ops::unfused::swiglu_backward};
  return gated_case("swiglu", tokens, columns, options, flags, call, [](auto&) {});
}

}  // namespace

OpTable swiglu_table() {
  OpTable table{.op = "swiglu", .shape_help = "TOKENSxF", .bench_shapes = {"8192x8192"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("swiglu", text, 2, help);
    return swiglu_case(n[0], n[1], {}, "");
  };
  for (const auto& [tokens, columns] : {std::pair{1, 1}, {1, 17}, {3, 64}, {17, 1}, {33, 100}, {70, 2049}}) {
    table.test_cases.push_back(swiglu_case(tokens, columns, {}, ""));
  }
  table.every_option = [help = table.shape_help](const std::string& text) -> std::vector<OpCase> {
    const auto n = parse_shape("swiglu", text, 2, help);
    return {swiglu_case(n[0], n[1], {.packed = true}, "packed"),
            swiglu_case(n[0], n[1], {.recompute = true}, "recompute"),
            swiglu_case(n[0], n[1], {.recompute = true, .over_dc = true}, "recompute over dc")};
  };
  for (const char* shape : {"1x1", "9x45", "33x64", "3x2049"}) table.test_options_at(shape);
  return table;
}

}  // namespace tigon::bench
