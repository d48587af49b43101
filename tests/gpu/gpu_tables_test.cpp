// Every row of every op's case table on a GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/gpu_fixture.hpp"
#include "ops/case_runner.hpp"

namespace tigon::test {
namespace {

constexpr DType kStorageTypes[] = {DType::f32, DType::bf16, DType::f16};

class GpuTable : public GpuTest, public testing::WithParamInterface<size_t> {
 protected:
  const bench::OpTable& table() const { return bench::all_tables()[GetParam()]; }

  template <class Condition>
  bool any_case(const Condition& condition) const {
    return std::any_of(table().test_cases.begin(), table().test_cases.end(), condition);
  }
};

TEST_P(GpuTable, FusedAgreesWithReference) {
  for (const auto& c : table().test_cases) {
    for (const DType dtype : kStorageTypes) check_on_device(c, dtype, Variant::fused, Layout::packed, kGpu);
  }
}

TEST_P(GpuTable, FusedAgreesWithReferenceInOddLayout) {
  for (const auto& c : table().test_cases) {
    for (const DType dtype : kStorageTypes) check_on_device(c, dtype, Variant::fused, Layout::odd, kGpu);
  }
}

TEST_P(GpuTable, UnfusedAgreesWithReference) {
  if (!any_case([](const bench::OpCase& c) { return c.unfused_forward != nullptr; })) GTEST_SKIP() << "no unfused form";
  for (const auto& c : table().test_cases) {
    if (!c.unfused_forward) continue;
    for (const DType dtype : kStorageTypes) check_on_device(c, dtype, Variant::unfused, Layout::packed, kGpu);
  }
}

TEST_P(GpuTable, SingleCallAgreesWithReference) {
  if (!any_case([](const bench::OpCase& c) { return c.full != nullptr; })) GTEST_SKIP() << "no single call";
  for (const auto& c : table().test_cases) {
    if (!c.full) continue;
    for (const DType dtype : kStorageTypes) check_full_call_on_device(c, dtype, kGpu);
  }
}

TEST_P(GpuTable, RunsAndGraphReplaysGiveTheSameBits) {
  for (const auto& c : table().test_cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) check_repeats_on_device(c, dtype, kGpu);
  }
}

std::vector<size_t> table_indices() {
  std::vector<size_t> indices(bench::all_tables().size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  return indices;
}

INSTANTIATE_TEST_SUITE_P(Ops, GpuTable, testing::ValuesIn(table_indices()),
                         [](const auto& info) { return bench::all_tables()[info.param].op; });

}  // namespace
}  // namespace tigon::test
