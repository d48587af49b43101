#pragma once

#include "backend/backend.hpp"

// The SIMD backend. One source per op, compiled for every instruction set and chosen at run time (Highway); rows are
// shared among threads in blocks whose bounds depend on the shape alone, so results do not depend on the thread count.
namespace tigon::cpu {

const Backend& backend();

void rmsnorm_forward(const Context& ctx, const ops::RmsnormForward& args);
void rmsnorm_backward(const Context& ctx, const ops::RmsnormBackward& args);
void softmax_forward(const Context& ctx, const ops::SoftmaxForward& args);
void softmax_backward(const Context& ctx, const ops::SoftmaxBackward& args);
void cross_entropy_forward(const Context& ctx, const ops::CrossEntropyForward& args);
void cross_entropy_backward(const Context& ctx, const ops::CrossEntropyBackward& args);
void linear_forward(const Context& ctx, const ops::LinearForward& args);
void linear_backward(const Context& ctx, const ops::LinearBackward& args);
void fused_linear_cross_entropy_forward(const Context& ctx, const ops::FusedLinearCrossEntropyForward& args);
void fused_linear_cross_entropy_backward(const Context& ctx, const ops::FusedLinearCrossEntropyForward& args);
void embedding_forward(const Context& ctx, const ops::EmbeddingForward& args);
void embedding_backward(const Context& ctx, const ops::EmbeddingBackward& args);
void attention_forward(const Context& ctx, const ops::AttentionForward& args);
void attention_backward(const Context& ctx, const ops::AttentionBackward& args);
void adamw(const Context& ctx, const ops::Adamw& args);
void global_norm(const Context& ctx, const ops::GlobalNorm& args);
void scale(const Context& ctx, const ops::Scale& args);
void add_rmsnorm_forward(const Context& ctx, const ops::AddRmsnormForward& args);
void add_rmsnorm_backward(const Context& ctx, const ops::AddRmsnormBackward& args);
void layernorm_forward(const Context& ctx, const ops::LayernormForward& args);
void layernorm_backward(const Context& ctx, const ops::LayernormBackward& args);
void rope_forward(const Context& ctx, const ops::Rope& args);
void rope_backward(const Context& ctx, const ops::Rope& args);
void swiglu_forward(const Context& ctx, const ops::SwigluForward& args);
void swiglu_backward(const Context& ctx, const ops::SwigluBackward& args);
void geglu_forward(const Context& ctx, const ops::GegluForward& args);
void geglu_backward(const Context& ctx, const ops::GegluBackward& args);
void unary(const Context& ctx, const ops::Unary& args);
void binary(const Context& ctx, const ops::Binary& args);
void reduce(const Context& ctx, const ops::Reduce& args);
void gather(const Context& ctx, const ops::Gather& args);
void scatter_add(const Context& ctx, const ops::ScatterAdd& args);

}  // namespace tigon::cpu
