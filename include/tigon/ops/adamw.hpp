#pragma once

#include <cstdint>

#include "tigon/core/context.hpp"

namespace tigon::ops {

enum class Rounding : int32_t { nearest = 0, stochastic = 1 };

// One AdamW update of a flat array of parameters, in f32, in place:
//   g = grad·grad_scale;  m = β1·m + (1−β1)·g;  v = β2·v + (1−β2)·g²
//   param −= lr·(m/(1−β1^step) / (sqrt(v/(1−β2^step)) + eps) + weight_decay·param)
// Stochastic rounding draws Philox(seed, step, tensor_id, element), so it does not depend on how the array is cut.
struct Adamw {
  Tensor param{};       // [n] f32, bf16 or f16
  Tensor grad{};        // [n] any floating type
  Tensor m{};           // [n] f32 or bf16
  Tensor v{};           // [n] f32 or bf16
  Tensor param_copy{};  // [n] bf16 or f16, optional: receives the new parameter rounded to nearest
  Tensor grad_scale{};  // [1] f32, optional: clipping and loss scale; read where the op runs
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  int64_t step = 1;                       // counts from 1
  Rounding rounding = Rounding::nearest;  // of param, m and v where they are 16-bit
  uint64_t seed = 0;
  uint32_t tensor_id = 0;
  int64_t first_element = 0;  // index of param[0] in the whole tensor, for shards
};
void adamw(const Context& ctx, const Adamw& args);

}  // namespace tigon::ops
