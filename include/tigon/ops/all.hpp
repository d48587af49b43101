#pragma once

#include "tigon/ops/adamw.hpp"
#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/attention.hpp"
#include "tigon/ops/cross_entropy.hpp"
#include "tigon/ops/elementary.hpp"
#include "tigon/ops/embedding.hpp"
#include "tigon/ops/fused_linear_cross_entropy.hpp"
#include "tigon/ops/geglu.hpp"
#include "tigon/ops/global_norm.hpp"
#include "tigon/ops/layernorm.hpp"
#include "tigon/ops/linear.hpp"
#include "tigon/ops/low_rank.hpp"
#include "tigon/ops/nf4.hpp"
#include "tigon/ops/rmsnorm.hpp"
#include "tigon/ops/rope.hpp"
#include "tigon/ops/scale.hpp"
#include "tigon/ops/softmax.hpp"
#include "tigon/ops/swiglu.hpp"

// The one list of ops: TIGON_OPS(row) is row(name, Arguments) for every function of every op. What has something of
// each (the backends' tables, the C ABI) is made of it.
// clang-format off
#define TIGON_OPS(row)                                                      \
  row(rmsnorm_forward, RmsnormForward)                                      \
  row(rmsnorm_backward, RmsnormBackward)                                    \
  row(add_rmsnorm_forward, AddRmsnormForward)                               \
  row(add_rmsnorm_backward, AddRmsnormBackward)                             \
  row(layernorm_forward, LayernormForward)                                  \
  row(layernorm_backward, LayernormBackward)                                \
  row(rope_forward, Rope)                                                   \
  row(rope_backward, Rope)                                                  \
  row(swiglu_forward, SwigluForward)                                        \
  row(swiglu_backward, SwigluBackward)                                      \
  row(geglu_forward, GegluForward)                                          \
  row(geglu_backward, GegluBackward)                                        \
  row(softmax_forward, SoftmaxForward)                                      \
  row(softmax_backward, SoftmaxBackward)                                    \
  row(cross_entropy_forward, CrossEntropyForward)                           \
  row(cross_entropy_backward, CrossEntropyBackward)                         \
  row(linear_forward, LinearForward)                                        \
  row(linear_backward, LinearBackward)                                      \
  row(fused_linear_cross_entropy_forward, FusedLinearCrossEntropyForward)   \
  row(fused_linear_cross_entropy_backward, FusedLinearCrossEntropyForward)  \
  row(embedding_forward, EmbeddingForward)                                  \
  row(embedding_backward, EmbeddingBackward)                                \
  row(attention_forward, AttentionForward)                                  \
  row(attention_backward, AttentionBackward)                                \
  row(adamw, Adamw)                                                         \
  row(adamw_list, AdamwList)                                                \
  row(global_norm, GlobalNorm)                                              \
  row(scale, Scale)                                                         \
  row(nf4_quantize, Nf4Quantize)                                            \
  row(nf4_dequantize, Nf4Dequantize)
// clang-format on

// Backends also have what the unfused forms are made of (elementary.hpp), and optimizers of low rank (low_rank.hpp);
// the C ABI does not.
// clang-format off
#define TIGON_BACKEND_OPS(row)                                                                                 \
  TIGON_OPS(row)                                                                                               \
  row(unary, Unary) row(binary, Binary) row(reduce, Reduce) row(gather, Gather) row(scatter_add, ScatterAdd) \
  row(normal, Normal) row(apollo_factors, ApolloFactors) row(scaled_update, ScaledUpdate)               \
  row(orthonormalize, Orthonormalize)
// clang-format on
