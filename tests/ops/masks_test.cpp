// Values that stand for "not this one" differ from the others by more than any exponential can show.
#include <gtest/gtest.h>

#include "ops/case_runner.hpp"
#include "ops/masked_case.hpp"

namespace tigon::test {
namespace {

TEST(Masks, CountForNothing) {
  const auto check = [](const bench::OpCase& c, DType dtype) {
    check_against_reference(c, dtype, Variant::fused, Layout::packed);
    if (c.unfused_forward) check_against_reference(c, dtype, Variant::unfused, Layout::packed);
  };
  for_masked_cases(bench::softmax_table(), {"7x64", "3x3000"}, check);
  for_masked_cases(bench::cross_entropy_table(), {"7x64", "3x3000", "7x64:in_place"}, check);
}

}  // namespace
}  // namespace tigon::test
