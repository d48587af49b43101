#include "backend/cpu/cpu_backend.hpp"

namespace tigon::cpu {

const Backend& backend() {
  static const Backend table = {
      .name = "cpu",
      .rmsnorm_forward = rmsnorm_forward,
      .rmsnorm_backward = rmsnorm_backward,
      .unary = unary,
      .binary = binary,
      .reduce = reduce,
      .gather = gather,
      .scatter_add = scatter_add,
  };
  return table;
}

}  // namespace tigon::cpu
