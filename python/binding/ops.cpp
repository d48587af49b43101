// Every op of the C ABI that the package calls, as a table. The order of an op's fields is the order of its Python
// arguments.
#include "op.hpp"

namespace tigon::python {

namespace {

template <class Args, auto Run, auto Scratch>
Op op(const char* name, const Args& defaults, std::span<const Field> fields) {
  static_assert(sizeof(Args) <= kLargestArguments);
  return {name,
          &defaults,
          sizeof(Args),
          [](const tigon_context* context, const void* args) { return Run(context, static_cast<const Args*>(args)); },
          [](const tigon_context* context, const void* args, int64_t* bytes) {
            return Scratch(context, static_cast<const Args*>(args), bytes);
          },
          fields};
}

// Fields of the struct that is called Args where they are used. Tensors come with the rank that the op takes.
#define TIGON_FIELD(kind, use, member) (Field{Field::Kind::kind, use, offsetof(Args, member), #member})
#define TIGON_IN(rank, member) TIGON_FIELD(tensor, (TensorUse{rank, false}), member)
#define TIGON_OUT(rank, member) TIGON_FIELD(tensor, (TensorUse{rank, true}), member)
#define TIGON_REAL(member) TIGON_FIELD(real, TensorUse{}, member)
#define TIGON_INT32(member) TIGON_FIELD(int32, TensorUse{}, member)
#define TIGON_INT64(member) TIGON_FIELD(int64, TensorUse{}, member)

Op rmsnorm_forward() {
  using Args = tigon_rmsnorm_forward_args;
  static const Args defaults = TIGON_RMSNORM_FORWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, x),  TIGON_IN(1, weight), TIGON_OUT(2, y),     TIGON_OUT(1, rstd),
                                 TIGON_REAL(eps), TIGON_REAL(offset),  TIGON_INT32(casting)};
  return op<Args, tigon_rmsnorm_forward, tigon_rmsnorm_forward_scratch>("rmsnorm_forward", defaults, fields);
}

Op rmsnorm_backward() {
  using Args = tigon_rmsnorm_backward_args;
  static const Args defaults = TIGON_RMSNORM_BACKWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, dy),  TIGON_IN(2, x),        TIGON_IN(1, weight), TIGON_IN(1, rstd),
                                 TIGON_OUT(2, dx), TIGON_OUT(1, dweight), TIGON_REAL(offset),  TIGON_INT32(casting)};
  return op<Args, tigon_rmsnorm_backward, tigon_rmsnorm_backward_scratch>("rmsnorm_backward", defaults, fields);
}

Op add_rmsnorm_forward() {
  using Args = tigon_add_rmsnorm_forward_args;
  static const Args defaults = TIGON_ADD_RMSNORM_FORWARD_INIT;
  static const Field fields[] = {
      TIGON_IN(2, x),     TIGON_IN(2, residual), TIGON_IN(1, weight), TIGON_OUT(2, residual_out), TIGON_OUT(2, y),
      TIGON_OUT(1, rstd), TIGON_REAL(eps),       TIGON_REAL(offset),  TIGON_INT32(casting)};
  return op<Args, tigon_add_rmsnorm_forward, tigon_add_rmsnorm_forward_scratch>("add_rmsnorm_forward", defaults,
                                                                                fields);
}

Op add_rmsnorm_backward() {
  using Args = tigon_add_rmsnorm_backward_args;
  static const Args defaults = TIGON_ADD_RMSNORM_BACKWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, dy),       TIGON_IN(2, dresidual_out), TIGON_IN(2, residual_out),
                                 TIGON_IN(1, weight),   TIGON_IN(1, rstd),          TIGON_OUT(2, dx),
                                 TIGON_OUT(1, dweight), TIGON_REAL(offset),         TIGON_INT32(casting)};
  return op<Args, tigon_add_rmsnorm_backward, tigon_add_rmsnorm_backward_scratch>("add_rmsnorm_backward", defaults,
                                                                                  fields);
}

Op layernorm_forward() {
  using Args = tigon_layernorm_forward_args;
  static const Args defaults = TIGON_LAYERNORM_FORWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, x),     TIGON_IN(1, weight), TIGON_IN(1, bias), TIGON_OUT(2, y),
                                 TIGON_OUT(1, mean), TIGON_OUT(1, rstd),  TIGON_REAL(eps)};
  return op<Args, tigon_layernorm_forward, tigon_layernorm_forward_scratch>("layernorm_forward", defaults, fields);
}

Op layernorm_backward() {
  using Args = tigon_layernorm_backward_args;
  static const Args defaults = TIGON_LAYERNORM_BACKWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, dy),   TIGON_IN(2, x),   TIGON_IN(1, weight),   TIGON_IN(1, mean),
                                 TIGON_IN(1, rstd), TIGON_OUT(2, dx), TIGON_OUT(1, dweight), TIGON_OUT(1, dbias)};
  return op<Args, tigon_layernorm_backward, tigon_layernorm_backward_scratch>("layernorm_backward", defaults, fields);
}

template <auto Run, auto Scratch>
Op rope(const char* name) {
  using Args = tigon_rope_args;
  static const Args defaults = TIGON_ROPE_INIT;
  static const Field fields[] = {TIGON_IN(4, q),         TIGON_IN(4, k),          TIGON_OUT(4, q_out),
                                 TIGON_OUT(4, k_out),    TIGON_IN(2, cos),        TIGON_IN(2, sin),
                                 TIGON_IN(2, positions), TIGON_INT64(rotary_dim), TIGON_INT32(pairing)};
  return op<Args, Run, Scratch>(name, defaults, fields);
}

Op swiglu_forward() {
  using Args = tigon_swiglu_forward_args;
  static const Args defaults = TIGON_SWIGLU_FORWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, a), TIGON_IN(2, b), TIGON_OUT(2, c)};
  return op<Args, tigon_swiglu_forward, tigon_swiglu_forward_scratch>("swiglu_forward", defaults, fields);
}

Op swiglu_backward() {
  using Args = tigon_swiglu_backward_args;
  static const Args defaults = TIGON_SWIGLU_BACKWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, dc),  TIGON_IN(2, a),   TIGON_IN(2, b),
                                 TIGON_OUT(2, da), TIGON_OUT(2, db), TIGON_OUT(2, c)};
  return op<Args, tigon_swiglu_backward, tigon_swiglu_backward_scratch>("swiglu_backward", defaults, fields);
}

Op geglu_forward() {
  using Args = tigon_geglu_forward_args;
  static const Args defaults = TIGON_GEGLU_FORWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, a), TIGON_IN(2, b), TIGON_OUT(2, c), TIGON_INT32(gelu)};
  return op<Args, tigon_geglu_forward, tigon_geglu_forward_scratch>("geglu_forward", defaults, fields);
}

Op geglu_backward() {
  using Args = tigon_geglu_backward_args;
  static const Args defaults = TIGON_GEGLU_BACKWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, dc),  TIGON_IN(2, a),  TIGON_IN(2, b),   TIGON_OUT(2, da),
                                 TIGON_OUT(2, db), TIGON_OUT(2, c), TIGON_INT32(gelu)};
  return op<Args, tigon_geglu_backward, tigon_geglu_backward_scratch>("geglu_backward", defaults, fields);
}

Op linear_forward() {
  using Args = tigon_linear_forward_args;
  static const Args defaults = TIGON_LINEAR_FORWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, x), TIGON_IN(2, weight), TIGON_OUT(2, y)};
  return op<Args, tigon_linear_forward, tigon_linear_forward_scratch>("linear_forward", defaults, fields);
}

Op linear_backward() {
  using Args = tigon_linear_backward_args;
  static const Args defaults = TIGON_LINEAR_BACKWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, dy), TIGON_IN(2, x), TIGON_IN(2, weight), TIGON_OUT(2, dx),
                                 TIGON_OUT(2, dweight)};
  return op<Args, tigon_linear_backward, tigon_linear_backward_scratch>("linear_backward", defaults, fields);
}

// The options of a loss, in the order of python/tigon/ops/_loss.py.
#define TIGON_LOSS_OPTIONS                                                                            \
  TIGON_INT64(options.ignore_index), TIGON_REAL(options.label_smoothing), TIGON_REAL(options.z_loss), \
      TIGON_REAL(options.softcap), TIGON_INT32(options.reduction)
#define TIGON_LOSS_OUTPUTS \
  TIGON_OUT(1, out.loss), TIGON_OUT(1, out.z_loss), TIGON_OUT(1, out.accuracy), TIGON_OUT(1, out.predicted)

Op cross_entropy_forward() {
  using Args = tigon_cross_entropy_forward_args;
  static const Args defaults = TIGON_CROSS_ENTROPY_FORWARD_INIT;
  static const Field fields[] = {TIGON_IN(2, logits),  TIGON_IN(1, target), TIGON_IN(1, class_weight),
                                 TIGON_LOSS_OPTIONS,   TIGON_LOSS_OUTPUTS,  TIGON_OUT(1, out.lse),
                                 TIGON_OUT(2, dlogits)};
  return op<Args, tigon_cross_entropy_forward, tigon_cross_entropy_forward_scratch>("cross_entropy_forward", defaults,
                                                                                    fields);
}

Op cross_entropy_backward() {
  using Args = tigon_cross_entropy_backward_args;
  static const Args defaults = TIGON_CROSS_ENTROPY_BACKWARD_INIT;
  static const Field fields[] = {TIGON_IN(1, dloss),        TIGON_IN(2, logits), TIGON_IN(1, target),
                                 TIGON_IN(1, class_weight), TIGON_IN(1, lse),    TIGON_LOSS_OPTIONS,
                                 TIGON_OUT(2, dlogits)};
  return op<Args, tigon_cross_entropy_backward, tigon_cross_entropy_backward_scratch>("cross_entropy_backward",
                                                                                      defaults, fields);
}

template <auto Run, auto Scratch>
Op fused_linear_cross_entropy(const char* name) {
  using Args = tigon_fused_linear_cross_entropy_args;
  static const Args defaults = TIGON_FUSED_LINEAR_CROSS_ENTROPY_INIT;
  static const Field fields[] = {TIGON_IN(2, x),
                                 TIGON_IN(2, weight),
                                 TIGON_IN(1, bias),
                                 TIGON_IN(1, target),
                                 TIGON_IN(1, class_weight),
                                 TIGON_IN(1, token_scale),
                                 TIGON_IN(1, dloss),
                                 TIGON_LOSS_OPTIONS,
                                 TIGON_INT64(chunk.tokens),
                                 TIGON_INT64(chunk.budget_bytes),
                                 TIGON_INT32(chunk.lean),
                                 TIGON_LOSS_OUTPUTS,
                                 TIGON_OUT(2, dx),
                                 TIGON_OUT(2, dweight),
                                 TIGON_OUT(1, dbias)};
  return op<Args, Run, Scratch>(name, defaults, fields);
}

Op embedding_backward() {
  using Args = tigon_embedding_backward_args;
  static const Args defaults = TIGON_EMBEDDING_BACKWARD_INIT;
  static const Field fields[] = {TIGON_IN(1, ids), TIGON_IN(2, dy), TIGON_OUT(2, dweight),
                                 TIGON_INT32(accumulate_dweight)};
  return op<Args, tigon_embedding_backward, tigon_embedding_backward_scratch>("embedding_backward", defaults, fields);
}

Op adamw_list() {
  using Args = tigon_adamw_args;
  static_assert(sizeof(Args) <= kLargestArguments);
  static const Args defaults = TIGON_ADAMW_INIT;
  static const Field fields[] = {
      TIGON_OUT(1, param),   TIGON_IN(1, grad),     TIGON_OUT(1, m),         TIGON_OUT(1, v),
      TIGON_OUT(1, m_scale), TIGON_OUT(1, v_scale), TIGON_IN(1, grad_scale), TIGON_REAL(lr),
      TIGON_REAL(beta1),     TIGON_REAL(beta2),     TIGON_REAL(eps),         TIGON_REAL(weight_decay),
      TIGON_INT64(step),     TIGON_INT32(rounding), TIGON_INT64(seed),       TIGON_INT32(tensor_id)};
  const auto run = [](const tigon_context* context, const void* structs, int64_t count) {
    tigon_adamw_list_args list = TIGON_ADAMW_LIST_INIT;
    list.updates = static_cast<const Args*>(structs);
    list.update_count = count;
    return tigon_adamw_list(context, &list);
  };
  return {.name = "adamw_list",
          .defaults = &defaults,
          .size = sizeof(Args),
          .run = nullptr,
          .scratch = nullptr,
          .fields = fields,
          .run_list = run};
}

Op scale() {
  using Args = tigon_scale_args;
  static const Args defaults = TIGON_SCALE_INIT;
  static const Field fields[] = {TIGON_OUT(1, x), TIGON_IN(1, factor)};
  return op<Args, tigon_scale, tigon_scale_scratch>("scale", defaults, fields);
}

Op nf4_quantize() {
  using Args = tigon_nf4_quantize_args;
  static const Args defaults = TIGON_NF4_QUANTIZE_INIT;
  static const Field fields[] = {TIGON_IN(1, x), TIGON_OUT(1, codes), TIGON_OUT(1, scale_codes),
                                 TIGON_OUT(1, group_scales), TIGON_OUT(1, offset)};
  return op<Args, tigon_nf4_quantize, tigon_nf4_quantize_scratch>("nf4_quantize", defaults, fields);
}

Op nf4_dequantize() {
  using Args = tigon_nf4_dequantize_args;
  static const Args defaults = TIGON_NF4_DEQUANTIZE_INIT;
  static const Field fields[] = {TIGON_IN(1, codes), TIGON_IN(1, scale_codes), TIGON_IN(1, group_scales),
                                 TIGON_IN(1, offset), TIGON_OUT(1, y)};
  return op<Args, tigon_nf4_dequantize, tigon_nf4_dequantize_scratch>("nf4_dequantize", defaults, fields);
}

}  // namespace

std::span<const Op> ops() {
  static const Op all[] = {
      rmsnorm_forward(),
      rmsnorm_backward(),
      add_rmsnorm_forward(),
      add_rmsnorm_backward(),
      layernorm_forward(),
      layernorm_backward(),
      rope<tigon_rope_forward, tigon_rope_forward_scratch>("rope_forward"),
      rope<tigon_rope_backward, tigon_rope_backward_scratch>("rope_backward"),
      swiglu_forward(),
      swiglu_backward(),
      geglu_forward(),
      geglu_backward(),
      linear_forward(),
      linear_backward(),
      cross_entropy_forward(),
      cross_entropy_backward(),
      fused_linear_cross_entropy<tigon_fused_linear_cross_entropy_forward,
                                 tigon_fused_linear_cross_entropy_forward_scratch>(
          "fused_linear_cross_entropy_forward"),
      fused_linear_cross_entropy<tigon_fused_linear_cross_entropy_backward,
                                 tigon_fused_linear_cross_entropy_backward_scratch>(
          "fused_linear_cross_entropy_backward"),
      embedding_backward(),
      adamw_list(),
      scale(),
      nf4_quantize(),
      nf4_dequantize(),
  };
  return all;
}

}  // namespace tigon::python
