#pragma once

namespace tigon::cpu {

// Makes this backend's kernels run with one instruction set from now on: "avx512", "avx2", "neon" or "plain". Null or
// empty: the widest that the CPU has. Throws Error where this CPU or build has none of that name. It says nothing to
// oneDNN, whose own variable is ONEDNN_MAX_CPU_ISA.
void use_instruction_set(const char* name);

}  // namespace tigon::cpu
