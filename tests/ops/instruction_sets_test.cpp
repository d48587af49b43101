// The fast paths on every instruction set this machine has, not only the best one: each was compiled from the same
// source, and each must agree with the reference.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>

#include "ops/case_runner.hpp"

namespace tigon::test {
namespace {

// Makes the dispatcher choose one target until it goes out of scope.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

TEST(InstructionSets, EachAgreesWithTheReference) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  for (const int64_t target : targets) {
    const OnlyTarget only(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const bench::OpTable& table : bench::all_tables()) {
      for (const bench::OpCase& c : table.test_cases) {
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
          check_against_reference(c, dtype, Variant::fused, Layout::odd);
        }
      }
    }
  }
  RecordProperty("targets", static_cast<int>(targets.size()));
#if HWY_ARCH_X86
  EXPECT_GE(targets.size(), 2u) << "at least AVX2 and the portable fallback";
#endif
}

// Minimum and maximum treat NaN differently on each machine, and a clamp that loses one hides a broken run. More NaN
// than the reference has is fine: masked products still multiply by it.
TEST(InstructionSets, EachShowsNaNWhereTheReferenceDoes) {
  const auto run = [](const bench::OpCase& c, DType dtype) {
    HeapArena heap;
    CaseData data(c, dtype, DType::f32);
    data.set_value(c.inputs[0].name, 0, std::numeric_limits<double>::quiet_NaN());
    data.run({.memory = &heap});
    return data;
  };
  for (const bench::OpTable& table : bench::all_tables()) {
    for (const bench::OpCase& c : table.test_cases) {
      if (c.inputs.empty() || c.inputs[0].role != bench::Role::storage) continue;
      const CaseData reference = run(c, DType::f64);
      for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
        const OnlyTarget only(target);
        const CaseData fast = run(c, DType::f32);
        for (const std::string& name : fast.results()) {
          const std::vector<double> expected = reference.values(name), got = fast.values(name);
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_TRUE(std::isnan(got[i]) || !std::isnan(expected[i]))
                << c.name() << " on " << hwy::TargetName(target) << ": " << name << " element " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tigon::test
