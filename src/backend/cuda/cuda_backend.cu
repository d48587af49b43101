// The entries of the plug-in: who it is, and its table of ops.
#include "backend/backend.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/services.cuh"

extern "C" __attribute__((visibility("default"))) tigon::BackendIdentity tigon_cuda_identity() {
  return tigon::backend_identity();
}

extern "C" __attribute__((visibility("default"))) const tigon::Backend* tigon_cuda_backend() {
  static const tigon::Backend table = {
      .name = "cuda",
      .services = &tigon::cuda::services(),
      .rmsnorm_forward = tigon::cuda::rmsnorm_forward,
      .rmsnorm_backward = tigon::cuda::rmsnorm_backward,
      .add_rmsnorm_forward = tigon::cuda::add_rmsnorm_forward,
      .add_rmsnorm_backward = tigon::cuda::add_rmsnorm_backward,
      .layernorm_forward = tigon::cuda::layernorm_forward,
      .layernorm_backward = tigon::cuda::layernorm_backward,
      .rope_forward = tigon::cuda::rope_forward,
      .rope_backward = tigon::cuda::rope_backward,
      .swiglu_forward = tigon::cuda::swiglu_forward,
      .swiglu_backward = tigon::cuda::swiglu_backward,
      .geglu_forward = tigon::cuda::geglu_forward,
      .geglu_backward = tigon::cuda::geglu_backward,
      .softmax_forward = tigon::cuda::softmax_forward,
      .softmax_backward = tigon::cuda::softmax_backward,
      .cross_entropy_forward = tigon::cuda::cross_entropy_forward,
      .cross_entropy_backward = tigon::cuda::cross_entropy_backward,
      .linear_forward = tigon::cuda::linear_forward,
      .linear_backward = tigon::cuda::linear_backward,
      .fused_linear_cross_entropy_forward = tigon::cuda::fused_linear_cross_entropy_forward,
      .fused_linear_cross_entropy_backward = tigon::cuda::fused_linear_cross_entropy_backward,
      .embedding_forward = tigon::cuda::embedding_forward,
      .embedding_backward = tigon::cuda::embedding_backward,
      .attention_forward = tigon::cuda::attention_forward,
      .attention_backward = tigon::cuda::attention_backward,
      .adamw = tigon::cuda::adamw,
      .global_norm = tigon::cuda::global_norm,
      .scale = tigon::cuda::scale,
      .unary = tigon::cuda::unary,
      .binary = tigon::cuda::binary,
      .reduce = tigon::cuda::reduce,
      .gather = tigon::cuda::gather,
      .scatter_add = tigon::cuda::scatter_add,
  };
  return &table;
}
