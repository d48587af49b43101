#include "backend/cpu/instruction_set.hpp"

#include <hwy/targets.h>

#include <string>

#include "tigon/core/error.hpp"

namespace tigon::cpu {

namespace {

std::string name_of(int64_t target) {
  if (target == HWY_AVX3) return "avx512";
  if (target == HWY_AVX2) return "avx2";
  return target >= HWY_EMU128 ? "plain" : "neon";  // Highway's portable targets have the highest bits
}

}  // namespace

void use_instruction_set(const char* name) {
  const std::string wanted = name != nullptr ? name : "";
  hwy::DisableTargets(0);
  if (wanted.empty()) return;
  std::string known;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name_of(target) == wanted) {
      hwy::DisableTargets(~target);
      return;
    }
    known += (known.empty() ? "" : ", ") + name_of(target);
  }
  throw Error(ErrorCode::unsupported, {.where = "TIGON_CPU_ISA",
                                       .what = "this CPU or build has no such instruction set",
                                       .expected = known,
                                       .got = wanted,
                                       .fix = "Choose one of these, or unset it for the widest."});
}

}  // namespace tigon::cpu
