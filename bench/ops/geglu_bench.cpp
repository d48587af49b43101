#include "gated_case.hpp"

namespace tigon::bench {

namespace {

OpCase geglu_case(int64_t tokens, int64_t columns, ops::Gelu gelu, const GatedOptions& options,
                  const std::string& flags) {
  const GatedCalls<ops::GegluForward, ops::GegluBackward> call{
      ops::geglu_forward, ops::geglu_backward, ops::unfused::geglu_forward, ops::unfused::geglu_backward};
  return gated_case("geglu", tokens, columns, options, flags, call, [gelu](auto& args) { args.gelu = gelu; });
}

}  // namespace

OpTable geglu_table() {
  using enum ops::Gelu;
  OpTable table{.op = "geglu", .shape_help = "TOKENSxF", .bench_shapes = {"8192x8192"}};
  table.make = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("geglu", text, 2, help);
    return geglu_case(n[0], n[1], tanh, {}, "");
  };
  for (const auto gelu : {tanh, erf}) {
    const std::string flags = gelu == erf ? "erf" : "";
    for (const auto& [tokens, columns] : {std::pair{1, 1}, {1, 17}, {17, 1}, {33, 100}, {70, 2049}}) {
      table.test_cases.push_back(geglu_case(tokens, columns, gelu, {}, flags));
    }
  }
  table.every_option = [help = table.shape_help](const std::string& text) -> std::vector<OpCase> {
    const auto n = parse_shape("geglu", text, 2, help);
    std::vector<OpCase> cases{geglu_case(n[0], n[1], erf, {}, "erf")};
    for (const auto gelu : {tanh, erf}) {
      const std::string erf_too = gelu == erf ? "erf " : "";
      cases.push_back(geglu_case(n[0], n[1], gelu, {.packed = true}, erf_too + "packed"));
      cases.push_back(geglu_case(n[0], n[1], gelu, {.recompute = true}, erf_too + "recompute"));
      cases.push_back(
          geglu_case(n[0], n[1], gelu, {.recompute = true, .over_dc = true}, erf_too + "recompute over dc"));
    }
    return cases;
  };
  for (const char* shape : {"1x1", "9x45", "33x64"}) table.test_options_at(shape);
  return table;
}

}  // namespace tigon::bench
