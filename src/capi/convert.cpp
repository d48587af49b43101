#include "capi/convert.hpp"

#include "tigon/core/error.hpp"

namespace tigon::capi {

Tensor Arguments::tensor(const tigon_tensor& t) const {
  if (t.rank == 0 && t.data == nullptr) return {};
  if (t.rank == 0) {  // forgotten, surely: taken for absent, a gradient would not be written and nobody would know
    throw Error(
        ErrorCode::invalid_argument,
        {.where = "tigon_tensor",
         .what = "there is data, but the rank is 0",
         .expected = "1 to " + std::to_string(kMaxRank),
         .got = "0",
         .fix = "Set rank, sizes and strides (one value: rank 1, size 1), or data to NULL for an absent tensor."});
  }
  if (t.rank < 0 || t.rank > kMaxRank) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "tigon_tensor",
                 .what = "the rank is out of range",
                 .expected = "1 to " + std::to_string(kMaxRank) + ", or 0 for an absent tensor",
                 .got = std::to_string(t.rank)});
  }
  Tensor view;
  view.data = t.data;
  view.dtype = static_cast<DType>(t.dtype);
  view.device = device_;
  view.rank = t.rank;
  for (int d = 0; d < t.rank; ++d) {
    view.sizes[d] = t.sizes[d];
    view.strides[d] = t.strides[d];
  }
  return view;
}

std::span<const Tensor> Arguments::tensors(const tigon_tensor* list, int64_t count) const {
  if (count < 0 || (count > 0 && list == nullptr)) {
    throw Error(ErrorCode::invalid_argument, {.where = "tensors",
                                              .what = "the list cannot be read",
                                              .expected = "a pointer to tensor_count tensors",
                                              .got = list == nullptr ? "NULL" : "a count of " + std::to_string(count)});
  }
  for (int64_t i = 0; i < count; ++i) list_.push_back(tensor(list[i]));
  return list_;
}

namespace {

ops::RopeScaling convert(const tigon_rope_scaling& s) {
  return {.kind = static_cast<ops::RopeScalingKind>(s.kind),
          .factor = s.factor,
          .low_freq_factor = s.low_freq_factor,
          .high_freq_factor = s.high_freq_factor,
          .original_max_position = s.original_max_position,
          .beta_fast = s.beta_fast,
          .beta_slow = s.beta_slow,
          .attention_factor = s.attention_factor};
}

ops::CrossEntropyOptions convert(const tigon_cross_entropy_options& o) {
  return {.ignore_index = o.ignore_index,
          .label_smoothing = o.label_smoothing,
          .z_loss = o.z_loss,
          .softcap = o.softcap,
          .reduction = static_cast<ops::Reduction>(o.reduction)};
}

ops::CrossEntropyOutputs convert(const tigon_cross_entropy_outputs& o, const Arguments& in) {
  return {.loss = in.tensor(o.loss),
          .z_loss = in.tensor(o.z_loss),
          .accuracy = in.tensor(o.accuracy),
          .predicted = in.tensor(o.predicted),
          .lse = in.tensor(o.lse)};
}

ops::ChunkRule convert(const tigon_chunk_rule& r) {
  return {.tokens = r.tokens, .budget_bytes = r.budget_bytes, .liger = r.liger != 0, .lean = r.lean != 0};
}

}  // namespace

ops::RmsnormForward convert(const tigon_rmsnorm_forward_args& a, const Arguments& in) {
  return {.x = in.tensor(a.x),
          .weight = in.tensor(a.weight),
          .y = in.tensor(a.y),
          .rstd = in.tensor(a.rstd),
          .eps = a.eps,
          .offset = a.offset,
          .casting = static_cast<ops::NormCasting>(a.casting)};
}

ops::RmsnormBackward convert(const tigon_rmsnorm_backward_args& a, const Arguments& in) {
  return {.dy = in.tensor(a.dy),
          .x = in.tensor(a.x),
          .weight = in.tensor(a.weight),
          .rstd = in.tensor(a.rstd),
          .dx = in.tensor(a.dx),
          .dweight = in.tensor(a.dweight),
          .offset = a.offset,
          .casting = static_cast<ops::NormCasting>(a.casting),
          .accumulate_dweight = a.accumulate_dweight != 0};
}

ops::AddRmsnormForward convert(const tigon_add_rmsnorm_forward_args& a, const Arguments& in) {
  return {.x = in.tensor(a.x),
          .residual = in.tensor(a.residual),
          .weight = in.tensor(a.weight),
          .residual_out = in.tensor(a.residual_out),
          .y = in.tensor(a.y),
          .rstd = in.tensor(a.rstd),
          .eps = a.eps,
          .offset = a.offset,
          .casting = static_cast<ops::NormCasting>(a.casting)};
}

ops::AddRmsnormBackward convert(const tigon_add_rmsnorm_backward_args& a, const Arguments& in) {
  return {.dy = in.tensor(a.dy),
          .dresidual_out = in.tensor(a.dresidual_out),
          .residual_out = in.tensor(a.residual_out),
          .weight = in.tensor(a.weight),
          .rstd = in.tensor(a.rstd),
          .dx = in.tensor(a.dx),
          .dweight = in.tensor(a.dweight),
          .offset = a.offset,
          .casting = static_cast<ops::NormCasting>(a.casting),
          .accumulate_dweight = a.accumulate_dweight != 0};
}

ops::LayernormForward convert(const tigon_layernorm_forward_args& a, const Arguments& in) {
  return {.x = in.tensor(a.x),
          .weight = in.tensor(a.weight),
          .bias = in.tensor(a.bias),
          .y = in.tensor(a.y),
          .mean = in.tensor(a.mean),
          .rstd = in.tensor(a.rstd),
          .eps = a.eps};
}

ops::LayernormBackward convert(const tigon_layernorm_backward_args& a, const Arguments& in) {
  return {.dy = in.tensor(a.dy),
          .x = in.tensor(a.x),
          .weight = in.tensor(a.weight),
          .mean = in.tensor(a.mean),
          .rstd = in.tensor(a.rstd),
          .dx = in.tensor(a.dx),
          .dweight = in.tensor(a.dweight),
          .dbias = in.tensor(a.dbias),
          .accumulate_dweight = a.accumulate_dweight != 0};
}

ops::Rope convert(const tigon_rope_args& a, const Arguments& in) {
  return {.q = in.tensor(a.q),
          .k = in.tensor(a.k),
          .q_out = in.tensor(a.q_out),
          .k_out = in.tensor(a.k_out),
          .cos = in.tensor(a.cos),
          .sin = in.tensor(a.sin),
          .positions = in.tensor(a.positions),
          .theta = a.theta,
          .scaling = convert(a.scaling),
          .rotary_dim = a.rotary_dim,
          .pairing = static_cast<ops::RopePairing>(a.pairing)};
}

ops::SwigluForward convert(const tigon_swiglu_forward_args& a, const Arguments& in) {
  return {.a = in.tensor(a.a), .b = in.tensor(a.b), .c = in.tensor(a.c)};
}

ops::SwigluBackward convert(const tigon_swiglu_backward_args& a, const Arguments& in) {
  return {.dc = in.tensor(a.dc),
          .a = in.tensor(a.a),
          .b = in.tensor(a.b),
          .da = in.tensor(a.da),
          .db = in.tensor(a.db),
          .c = in.tensor(a.c)};
}

ops::GegluForward convert(const tigon_geglu_forward_args& a, const Arguments& in) {
  return {.a = in.tensor(a.a), .b = in.tensor(a.b), .c = in.tensor(a.c), .gelu = static_cast<ops::Gelu>(a.gelu)};
}

ops::GegluBackward convert(const tigon_geglu_backward_args& a, const Arguments& in) {
  return {.dc = in.tensor(a.dc),
          .a = in.tensor(a.a),
          .b = in.tensor(a.b),
          .da = in.tensor(a.da),
          .db = in.tensor(a.db),
          .c = in.tensor(a.c),
          .gelu = static_cast<ops::Gelu>(a.gelu)};
}

ops::SoftmaxForward convert(const tigon_softmax_forward_args& a, const Arguments& in) {
  return {.x = in.tensor(a.x), .y = in.tensor(a.y), .scale = a.scale};
}

ops::SoftmaxBackward convert(const tigon_softmax_backward_args& a, const Arguments& in) {
  return {.dy = in.tensor(a.dy), .y = in.tensor(a.y), .dx = in.tensor(a.dx), .scale = a.scale};
}

ops::CrossEntropyForward convert(const tigon_cross_entropy_forward_args& a, const Arguments& in) {
  return {.logits = in.tensor(a.logits),
          .target = in.tensor(a.target),
          .class_weight = in.tensor(a.class_weight),
          .token_scale = in.tensor(a.token_scale),
          .options = convert(a.options),
          .out = convert(a.out, in),
          .dlogits = in.tensor(a.dlogits)};
}

ops::CrossEntropyBackward convert(const tigon_cross_entropy_backward_args& a, const Arguments& in) {
  return {.dloss = in.tensor(a.dloss),
          .logits = in.tensor(a.logits),
          .target = in.tensor(a.target),
          .class_weight = in.tensor(a.class_weight),
          .token_scale = in.tensor(a.token_scale),
          .lse = in.tensor(a.lse),
          .options = convert(a.options),
          .dlogits = in.tensor(a.dlogits)};
}

ops::LinearForward convert(const tigon_linear_forward_args& a, const Arguments& in) {
  return {.x = in.tensor(a.x), .weight = in.tensor(a.weight), .bias = in.tensor(a.bias), .y = in.tensor(a.y)};
}

ops::LinearBackward convert(const tigon_linear_backward_args& a, const Arguments& in) {
  return {.dy = in.tensor(a.dy),
          .x = in.tensor(a.x),
          .weight = in.tensor(a.weight),
          .dx = in.tensor(a.dx),
          .dweight = in.tensor(a.dweight),
          .dbias = in.tensor(a.dbias),
          .accumulate_dx = a.accumulate_dx != 0,
          .accumulate_dweight = a.accumulate_dweight != 0};
}

ops::FusedLinearCrossEntropyForward convert(const tigon_fused_linear_cross_entropy_args& a, const Arguments& in) {
  return {.x = in.tensor(a.x),
          .weight = in.tensor(a.weight),
          .bias = in.tensor(a.bias),
          .target = in.tensor(a.target),
          .class_weight = in.tensor(a.class_weight),
          .token_scale = in.tensor(a.token_scale),
          .dloss = in.tensor(a.dloss),
          .options = convert(a.options),
          .chunk = convert(a.chunk),
          .out = convert(a.out, in),
          .dx = in.tensor(a.dx),
          .dweight = in.tensor(a.dweight),
          .dbias = in.tensor(a.dbias),
          .accumulate_dweight = a.accumulate_dweight != 0};
}

ops::EmbeddingForward convert(const tigon_embedding_forward_args& a, const Arguments& in) {
  return {.ids = in.tensor(a.ids), .weight = in.tensor(a.weight), .y = in.tensor(a.y), .scale = a.scale};
}

ops::EmbeddingBackward convert(const tigon_embedding_backward_args& a, const Arguments& in) {
  return {.ids = in.tensor(a.ids),
          .dy = in.tensor(a.dy),
          .dweight = in.tensor(a.dweight),
          .scale = a.scale,
          .accumulate_dweight = a.accumulate_dweight != 0};
}

ops::AttentionForward convert(const tigon_attention_forward_args& a, const Arguments& in) {
  return {.q = in.tensor(a.q),
          .k = in.tensor(a.k),
          .v = in.tensor(a.v),
          .o = in.tensor(a.o),
          .lse = in.tensor(a.lse),
          .scale = a.scale,
          .causal = a.causal != 0};
}

ops::AttentionBackward convert(const tigon_attention_backward_args& a, const Arguments& in) {
  return {.dout = in.tensor(a.dout),
          .q = in.tensor(a.q),
          .k = in.tensor(a.k),
          .v = in.tensor(a.v),
          .o = in.tensor(a.o),
          .lse = in.tensor(a.lse),
          .dq = in.tensor(a.dq),
          .dk = in.tensor(a.dk),
          .dv = in.tensor(a.dv),
          .scale = a.scale,
          .causal = a.causal != 0,
          .deterministic = a.racing == 0};
}

ops::Adamw convert(const tigon_adamw_args& a, const Arguments& in) {
  return {.param = in.tensor(a.param),
          .grad = in.tensor(a.grad),
          .m = in.tensor(a.m),
          .v = in.tensor(a.v),
          .m_scale = in.tensor(a.m_scale),
          .v_scale = in.tensor(a.v_scale),
          .param_copy = in.tensor(a.param_copy),
          .grad_scale = in.tensor(a.grad_scale),
          .lr = a.lr,
          .beta1 = a.beta1,
          .beta2 = a.beta2,
          .eps = a.eps,
          .weight_decay = a.weight_decay,
          .step = a.step,
          .rounding = static_cast<ops::Rounding>(a.rounding),
          .seed = a.seed,
          .tensor_id = a.tensor_id,
          .first_element = a.first_element};
}

std::span<const ops::Adamw> Arguments::updates(const tigon_adamw_args* list, int64_t count) const {
  if (count < 0 || (count > 0 && list == nullptr)) {
    throw Error(ErrorCode::invalid_argument, {.where = "adamw_list",
                                              .what = "the list cannot be read",
                                              .expected = "a pointer to update_count structs",
                                              .got = list == nullptr ? "NULL" : "a count of " + std::to_string(count)});
  }
  const auto* next = reinterpret_cast<const std::byte*>(list);
  for (int64_t i = 0; i < count; ++i) {
    const auto one = read_struct(reinterpret_cast<const tigon_adamw_args*>(next), "adamw_list");
    if (one.struct_size != list->struct_size) {
      throw Error(ErrorCode::invalid_argument, {.where = "adamw_list",
                                                .what = "the structs are not of one size",
                                                .expected = std::to_string(list->struct_size),
                                                .got = std::to_string(one.struct_size)});
    }
    updates_.push_back(convert(one, *this));
    next += one.struct_size;
  }
  return updates_;
}

ops::AdamwList convert(const tigon_adamw_list_args& a, const Arguments& in) {
  return {.updates = in.updates(a.updates, a.update_count)};
}

ops::GlobalNorm convert(const tigon_global_norm_args& a, const Arguments& in) {
  return {.tensors = in.tensors(a.tensors, a.tensor_count),
          .norm = in.tensor(a.norm),
          .clip = in.tensor(a.clip),
          .max_norm = a.max_norm,
          .scale = a.scale};
}

ops::Scale convert(const tigon_scale_args& a, const Arguments& in) {
  return {.x = in.tensor(a.x), .factor = in.tensor(a.factor)};
}

namespace {
template <class Args>
ops::Nf4 nf4(const Args& a, const Arguments& in) {
  return {.codes = in.tensor(a.codes),
          .scale_codes = in.tensor(a.scale_codes),
          .group_scales = in.tensor(a.group_scales),
          .offset = in.tensor(a.offset)};
}
}  // namespace

ops::Nf4Quantize convert(const tigon_nf4_quantize_args& a, const Arguments& in) {
  return {.x = in.tensor(a.x), .to = nf4(a, in)};
}

ops::Nf4Dequantize convert(const tigon_nf4_dequantize_args& a, const Arguments& in) {
  return {.from = nf4(a, in), .y = in.tensor(a.y)};
}
}  // namespace tigon::capi
