#pragma once

#include "backend/backend.hpp"

// The plain backend: f64, one loop after another, no tricks. It defines what the fast backends must compute, serves f64
// tensors (gradient checks), and is itself checked by finite differences.
namespace tigon::reference {

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

// Element access by index, for any strides.
inline double& at(const Tensor& t, int64_t i) { return t.as<double>()[i * t.strides[0]]; }
inline double& at(const Tensor& t, int64_t i, int64_t j) { return t.as<double>()[i * t.strides[0] + j * t.strides[1]]; }
inline double& at(const Tensor& t, int64_t i, int64_t j, int64_t k) {
  return t.as<double>()[i * t.strides[0] + j * t.strides[1] + k * t.strides[2]];
}
inline double& at(const Tensor& t, int64_t i, int64_t j, int64_t k, int64_t l) {
  return t.as<double>()[i * t.strides[0] + j * t.strides[1] + k * t.strides[2] + l * t.strides[3]];
}
inline int64_t index_at(const Tensor& t, int64_t i) {
  return t.dtype == DType::i32 ? t.as<int32_t>()[i * t.strides[0]] : t.as<int64_t>()[i * t.strides[0]];
}

}  // namespace tigon::reference
