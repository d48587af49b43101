#pragma once

#include "tigon/core/context.hpp"

namespace tigon::ops {

// y_t = scale·weight[id_t]. Ids outside the table are an error before anything is written; on a GPU, where looking at
// ids would need a wait, their rows are NaN, and backward passes over them.
struct EmbeddingForward {
  Tensor ids{};     // [tokens] i32 or i64
  Tensor weight{};  // [V, hidden]
  Tensor y{};       // [tokens, hidden], weight's type
  double scale = 1.0;
};
void embedding_forward(const Context& ctx, const EmbeddingForward& args);

// dweight[id] (+)= scale·Σ of the dy of its tokens, in order of position, in f32: the same bits on every run.
struct EmbeddingBackward {
  Tensor ids{};      // [tokens]
  Tensor dy{};       // [tokens, hidden]
  Tensor dweight{};  // [V, hidden], f32 or dy's type
  double scale = 1.0;
  bool accumulate_dweight = false;  // add; otherwise rows without a token become zero
};
void embedding_backward(const Context& ctx, const EmbeddingBackward& args);

}  // namespace tigon::ops
