#include "backend/cpu/cpu_backend.hpp"

#include <cstdlib>

#include "backend/cpu/instruction_set.hpp"

namespace tigon::cpu {

const Backend& backend() {
  static const bool chosen = (use_instruction_set(std::getenv("TIGON_CPU_ISA")), true);  // tried again if it throws
  (void)chosen;
  static const Backend table = {.name = "cpu", TIGON_BACKEND_OPS(TIGON_TABLE_ENTRY)};
  return table;
}

}  // namespace tigon::cpu
