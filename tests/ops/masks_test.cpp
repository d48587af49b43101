// Values that stand for "not this one" differ from the others by more than any exponential can show.
#include <gtest/gtest.h>

#include "ops/case_runner.hpp"
#include "ops/masked_case.hpp"

namespace tigon::test {
namespace {

TEST(Masks, CountForNothing) {
  const auto check = [](const bench::OpTable& table, std::initializer_list<const char*> shapes) {
    for (const char* shape : shapes) {
      for (const double mask : kMasks) {
        const bench::OpCase c = masked_case(table, shape, mask);
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
          if (!holds_mask(dtype, mask)) continue;
          check_against_reference(c, dtype, Variant::fused, Layout::packed);
          if (c.unfused_forward) check_against_reference(c, dtype, Variant::unfused, Layout::packed);
        }
      }
    }
  };
  check(bench::softmax_table(), {"7x64", "3x3000"});
  check(bench::cross_entropy_table(), {"7x64", "3x3000", "7x64:in_place"});
}

}  // namespace
}  // namespace tigon::test
