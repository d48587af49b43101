#pragma once

#include "op_case.hpp"

namespace tigon::test {

// A case of softmax or cross_entropy as masks make them: all but 8 columns of a row have one large negative value; in
// softmax every third row has nothing else. Targets are among the 8.
inline bench::OpCase masked_case(const bench::OpTable& table, const std::string& shape, double mask) {
  bench::OpCase c = table.make(shape);
  c.flags = "masked by " + std::to_string(mask);
  bench::Slot& values = c.inputs[0];
  const bool loss = table.op == "cross_entropy";
  values.fill.value = [mask, loss, columns = values.sizes[1]](int64_t e) {
    const int64_t row = e / columns, column = e % columns;
    return column >= 8 || (!loss && row % 3 == 2) ? mask : 0.25 * static_cast<double>(column - row % 5);
  };
  if (loss) c.inputs[1].fill.value = [](int64_t e) { return static_cast<double>(e % 8); };
  return c;
}

// check(case, type) for each shape, each mask in use (the lowest of bf16 among them) and each type that holds it.
template <class Check>
void for_masked_cases(const bench::OpTable& table, std::initializer_list<const char*> shapes, const Check& check) {
  for (const char* shape : shapes) {
    for (const double mask : {-6e4, -1e9, -3e9, -1e10, -1e30, -0x1.fep127}) {
      const bench::OpCase c = masked_case(table, shape, mask);
      check(c, DType::f32);
      check(c, DType::bf16);
      if (mask > -65504) check(c, DType::f16);
    }
  }
}

}  // namespace tigon::test
