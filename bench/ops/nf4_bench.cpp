#include "op_case.hpp"
#include "tigon/ops/nf4.hpp"

namespace tigon::bench {

namespace {

std::vector<Slot> nf4_slots(int64_t n) {
  return {{.name = "codes", .sizes = {n / 2 + n % 2}, .role = Role::code, .fill = {.limit = 256}},
          {.name = "scale_codes", .sizes = {ops::nf4_blocks(n)}, .role = Role::code, .fill = {.limit = 256}},
          {.name = "group_scales",
           .sizes = {ops::nf4_groups(n)},
           .role = Role::statistic,
           .fill = {.mean = 1.0, .deviation = 0.1}},
          {.name = "offset", .sizes = {1}, .role = Role::statistic, .fill = {.mean = 2.5, .deviation = 0.0}}};
}

ops::Nf4 nf4_of(const Tensors& t) {
  return {
      .codes = t["codes"], .scale_codes = t["scale_codes"], .group_scales = t["group_scales"], .offset = t["offset"]};
}

Work nf4_work(int64_t n, int64_t size) {
  return {.bytes = n * size + n / 2 + ops::nf4_blocks(n) + 4 * ops::nf4_groups(n)};
}

OpCase quantize_case(int64_t n) {
  OpCase c;
  c.op = "nf4_quantize";
  c.shape = std::to_string(n);
  // Multiples of 1/64, beside a largest magnitude that is one of five: few quotients, of which none is near a middle.
  c.inputs = {{.name = "x", .sizes = {n}, .fill = {.value = [](int64_t e) {
                                            const int64_t block = e / ops::kNf4Block;
                                            return e % ops::kNf4Block == block % 7
                                                       ? 4.0 + static_cast<double>(block % 5) * 2
                                                       : static_cast<double>(e * 37 % 509 - 254) / 64.0;
                                          }}}};
  c.outputs = nf4_slots(n);
  c.forward = [](const Context& ctx, const Tensors& t) { ops::nf4_quantize(ctx, {.x = t["x"], .to = nf4_of(t)}); };
  c.forward_work = [=](int64_t size) { return nf4_work(n, size); };
  return c;
}

OpCase dequantize_case(int64_t n) {
  OpCase c;
  c.op = "nf4_dequantize";
  c.shape = std::to_string(n);
  c.inputs = nf4_slots(n);
  c.outputs = {{.name = "y", .sizes = {n}}};
  c.forward = [](const Context& ctx, const Tensors& t) { ops::nf4_dequantize(ctx, {.from = nf4_of(t), .y = t["y"]}); };
  c.forward_work = [=](int64_t size) { return nf4_work(n, size); };
  return c;
}

OpTable table_of(const char* op, OpCase (*make)(int64_t)) {
  OpTable table{.op = op, .shape_help = "N", .bench_shapes = {"67108864"}};
  table.make = [=](const std::string& text) { return make(parse_shape(op, text, 1, "N")[0]); };
  table.every_option = [=, one = table.make](const std::string& text) { return std::vector<OpCase>{one(text)}; };
  for (const int64_t n : {1, 2, 63, 64, 65, 127, 16384, 16385, 16448, 70001}) table.test_cases.push_back(make(n));
  return table;
}

}  // namespace

OpTable nf4_quantize_table() { return table_of("nf4_quantize", quantize_case); }
OpTable nf4_dequantize_table() { return table_of("nf4_dequantize", dequantize_case); }

}  // namespace tigon::bench
