// Every row of every op's case table through every runner.
#include <gtest/gtest.h>

#include "ops/case_runner.hpp"

namespace tigon::test {
namespace {

constexpr DType kStorageTypes[] = {DType::f32, DType::bf16, DType::f16};

class Table : public testing::TestWithParam<size_t> {
 protected:
  const bench::OpTable& table() const { return bench::all_tables()[GetParam()]; }
};

TEST_P(Table, ReferenceAgreesWithFiniteDifferences) {
  for (const auto& c : table().test_cases) check_finite_differences(c);
}

TEST_P(Table, FusedAgreesWithReference) {
  for (const auto& c : table().test_cases) {
    for (const DType dtype : kStorageTypes) {
      for (const Layout layout : {Layout::packed, Layout::odd})
        check_against_reference(c, dtype, Variant::fused, layout);
    }
  }
}

TEST_P(Table, UnfusedAgreesWithReference) {
  for (const auto& c : table().test_cases) {
    if (!c.unfused_forward) continue;
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      check_against_reference(c, dtype, Variant::unfused, Layout::packed);
    }
  }
}

TEST_P(Table, SingleCallAgreesWithReference) {
  for (const auto& c : table().test_cases) {
    if (!c.full) continue;
    for (const DType dtype : kStorageTypes) check_full_call(c, dtype);
  }
}

TEST_P(Table, BitsDoNotDependOnThreadCount) {
  for (const auto& c : table().test_cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) check_thread_counts(c, dtype);
  }
}

TEST_P(Table, PlannedBytesAreUsedBytes) {
  for (const auto& c : table().test_cases) {
    check_plan(c, DType::bf16, Variant::fused);
    if (c.unfused_forward) check_plan(c, DType::f32, Variant::unfused);
  }
}

std::vector<size_t> table_indices() {
  std::vector<size_t> indices(bench::all_tables().size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return indices;
}

INSTANTIATE_TEST_SUITE_P(Ops, Table, testing::ValuesIn(table_indices()),
                         [](const auto& info) { return bench::all_tables()[info.param].op; });

}  // namespace
}  // namespace tigon::test
