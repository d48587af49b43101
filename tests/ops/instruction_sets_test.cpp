// The fast paths on every instruction set this machine has, not only the best one: each was compiled from the same
// source, and each must agree with the reference.
#include <gtest/gtest.h>
#include <hwy/targets.h>

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

}  // namespace
}  // namespace tigon::test
