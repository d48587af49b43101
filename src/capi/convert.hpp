#pragma once

#include <vector>

#include "tigon/core/context.hpp"
#include "tigon/ops/adamw.hpp"
#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/attention.hpp"
#include "tigon/ops/embedding.hpp"
#include "tigon/ops/fused_linear_cross_entropy.hpp"
#include "tigon/ops/geglu.hpp"
#include "tigon/ops/global_norm.hpp"
#include "tigon/ops/layernorm.hpp"
#include "tigon/ops/linear.hpp"
#include "tigon/ops/rope.hpp"
#include "tigon/ops/scale.hpp"
#include "tigon/ops/softmax.hpp"
#include "tigon/ops/swiglu.hpp"
#include "tigon/tigon.h"

// C argument structs into their C++ twins, field by field. Nothing is trusted: ranks are checked here, because they
// index arrays; the rest is checked by the ops.
namespace tigon::capi {

class Arguments {
 public:
  explicit Arguments(Device device) : device_(device) {}

  Tensor tensor(const tigon_tensor& t) const;
  // Valid as long as this object.
  std::span<const Tensor> tensors(const tigon_tensor* list, int64_t count) const;

 private:
  Device device_;
  mutable std::vector<Tensor> list_;
};

ops::RmsnormForward convert(const tigon_rmsnorm_forward_args& a, const Arguments& in);
ops::RmsnormBackward convert(const tigon_rmsnorm_backward_args& a, const Arguments& in);
ops::AddRmsnormForward convert(const tigon_add_rmsnorm_forward_args& a, const Arguments& in);
ops::AddRmsnormBackward convert(const tigon_add_rmsnorm_backward_args& a, const Arguments& in);
ops::LayernormForward convert(const tigon_layernorm_forward_args& a, const Arguments& in);
ops::LayernormBackward convert(const tigon_layernorm_backward_args& a, const Arguments& in);
ops::Rope convert(const tigon_rope_args& a, const Arguments& in);
ops::SwigluForward convert(const tigon_swiglu_forward_args& a, const Arguments& in);
ops::SwigluBackward convert(const tigon_swiglu_backward_args& a, const Arguments& in);
ops::GegluForward convert(const tigon_geglu_forward_args& a, const Arguments& in);
ops::GegluBackward convert(const tigon_geglu_backward_args& a, const Arguments& in);
ops::SoftmaxForward convert(const tigon_softmax_forward_args& a, const Arguments& in);
ops::SoftmaxBackward convert(const tigon_softmax_backward_args& a, const Arguments& in);
ops::CrossEntropyForward convert(const tigon_cross_entropy_forward_args& a, const Arguments& in);
ops::CrossEntropyBackward convert(const tigon_cross_entropy_backward_args& a, const Arguments& in);
ops::LinearForward convert(const tigon_linear_forward_args& a, const Arguments& in);
ops::LinearBackward convert(const tigon_linear_backward_args& a, const Arguments& in);
ops::FusedLinearCrossEntropyForward convert(const tigon_fused_linear_cross_entropy_args& a, const Arguments& in);
ops::EmbeddingForward convert(const tigon_embedding_forward_args& a, const Arguments& in);
ops::EmbeddingBackward convert(const tigon_embedding_backward_args& a, const Arguments& in);
ops::AttentionForward convert(const tigon_attention_forward_args& a, const Arguments& in);
ops::AttentionBackward convert(const tigon_attention_backward_args& a, const Arguments& in);
ops::Adamw convert(const tigon_adamw_args& a, const Arguments& in);
ops::GlobalNorm convert(const tigon_global_norm_args& a, const Arguments& in);
ops::Scale convert(const tigon_scale_args& a, const Arguments& in);

}  // namespace tigon::capi
