#include "backend/cpu/cpu_backend.hpp"

namespace tigon::cpu {

const Backend& backend() {
  static const Backend table = {
      .name = "cpu",
      .rmsnorm_forward = rmsnorm_forward,
      .rmsnorm_backward = rmsnorm_backward,
      .embedding_forward = embedding_forward,
      .embedding_backward = embedding_backward,
      .attention_forward = attention_forward,
      .attention_backward = attention_backward,
      .adamw = adamw,
      .global_norm = global_norm,
      .unary = unary,
      .binary = binary,
      .reduce = reduce,
      .gather = gather,
      .scatter_add = scatter_add,
  };
  return table;
}

}  // namespace tigon::cpu
