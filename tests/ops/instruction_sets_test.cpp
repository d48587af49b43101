// The fast paths on every instruction set this machine has, not only the best one: each was compiled from the same
// source, and each must agree with the reference.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/instruction_set.hpp"
#include "ops/case_runner.hpp"
#include "ops/expect_error.hpp"

namespace tigon::test {
namespace {

// Those this machine has, or the one that TIGON_CPU_ISA names.
std::vector<int64_t> targets_in_use() {
  (void)cpu::backend();  // reads the variable
  return hwy::SupportedAndGeneratedTargets();
}

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
  const std::vector<int64_t> targets = targets_in_use();
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
  const char* chosen = std::getenv("TIGON_CPU_ISA");
  if (chosen != nullptr && *chosen != '\0') {
    EXPECT_EQ(targets.size(), 1u);
  } else {
    EXPECT_GE(targets.size(), 2u) << "at least AVX2 or NEON, and the portable fallback";
  }
}

// What TIGON_CPU_ISA names runs, and nothing else does.
TEST(InstructionSets, OneIsChosenByName) {
  const std::vector<int64_t> before = targets_in_use();
  cpu::use_instruction_set("plain");
  EXPECT_GE(hwy::SupportedAndGeneratedTargets().front(), HWY_EMU128);
  EXPECT_EQ(hwy::SupportedAndGeneratedTargets().size(), 1u);
  expect_error([] { cpu::use_instruction_set("sse9"); }, ErrorCode::unsupported, "plain, got sse9");
  EXPECT_GT(hwy::SupportedAndGeneratedTargets().size(), 1u) << "an unknown name leaves the widest";
#if HWY_ARCH_X86
  cpu::use_instruction_set("avx2");
  EXPECT_EQ(hwy::SupportedAndGeneratedTargets(), std::vector<int64_t>{HWY_AVX2});
  expect_error([] { cpu::use_instruction_set("neon"); }, ErrorCode::unsupported, "avx2");
#endif
  cpu::use_instruction_set(std::getenv("TIGON_CPU_ISA"));
  EXPECT_EQ(hwy::SupportedAndGeneratedTargets(), before);
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
      for (const int64_t target : targets_in_use()) {
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
