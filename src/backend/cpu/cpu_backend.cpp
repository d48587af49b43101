#include "backend/cpu/cpu_backend.hpp"

#include <cstdlib>

#include "backend/cpu/instruction_set.hpp"

namespace tigon::cpu {

const Backend& backend() {
  static const bool chosen = (use_instruction_set(std::getenv("TIGON_CPU_ISA")), true);  // tried again if it throws
  (void)chosen;
  static const Backend table = {
      .name = "cpu",
      .rmsnorm_forward = rmsnorm_forward,
      .rmsnorm_backward = rmsnorm_backward,
      .add_rmsnorm_forward = add_rmsnorm_forward,
      .add_rmsnorm_backward = add_rmsnorm_backward,
      .layernorm_forward = layernorm_forward,
      .layernorm_backward = layernorm_backward,
      .rope_forward = rope_forward,
      .rope_backward = rope_backward,
      .swiglu_forward = swiglu_forward,
      .swiglu_backward = swiglu_backward,
      .geglu_forward = geglu_forward,
      .geglu_backward = geglu_backward,
      .softmax_forward = softmax_forward,
      .softmax_backward = softmax_backward,
      .cross_entropy_forward = cross_entropy_forward,
      .cross_entropy_backward = cross_entropy_backward,
      .linear_forward = linear_forward,
      .linear_backward = linear_backward,
      .fused_linear_cross_entropy_forward = fused_linear_cross_entropy_forward,
      .fused_linear_cross_entropy_backward = fused_linear_cross_entropy_backward,
      .embedding_forward = embedding_forward,
      .embedding_backward = embedding_backward,
      .attention_forward = attention_forward,
      .attention_backward = attention_backward,
      .adamw = adamw,
      .global_norm = global_norm,
      .scale = scale,
      .unary = unary,
      .binary = binary,
      .reduce = reduce,
      .gather = gather,
      .scatter_add = scatter_add,
  };
  return table;
}

}  // namespace tigon::cpu
