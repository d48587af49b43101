/* The C ABI of Tigon: every op, forward and backward, on raw pointers. What bindings to other languages use.
 *
 * A call takes a context (where and how to run) and an argument struct, and returns TIGON_OK or an error number; then
 * tigon_last_error() explains. Nothing is written when arguments are refused. Start each struct from its _INIT macro:
 * it sets the struct's size, by which the library recognises callers built against an older header, and the defaults.
 *
 *   tigon_context context = TIGON_CONTEXT_INIT;
 *   tigon_rmsnorm_forward_args args = TIGON_RMSNORM_FORWARD_INIT;
 *   args.x = ...;
 *   int64_t bytes;
 *   tigon_rmsnorm_forward_scratch(&context, &args, &bytes);   (data pointers may be NULL still)
 *   context.scratch = malloc(bytes);  context.scratch_bytes = bytes;
 *   tigon_rmsnorm_forward(&context, &args);
 *
 * Scratch may be shared by calls that do not overlap in time. An op allocates nothing else that grows with its
 * arguments, unless they are f64, which is for checking gradients. */
#ifndef TIGON_TIGON_H_
#define TIGON_TIGON_H_

#include <stdint.h>

#if defined(_WIN32)
#define TIGON_API
#else
#define TIGON_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum tigon_status {
  TIGON_OK = 0,
  TIGON_INVALID_ARGUMENT = 1, /* a size, stride, flag or pointer the op cannot work with */
  TIGON_UNSUPPORTED = 2,      /* understood, but this build or device cannot do it */
  TIGON_OUT_OF_MEMORY = 3,    /* also: too little scratch */
  TIGON_IO = 4,
  TIGON_INTERNAL = 5
};
enum tigon_dtype {
  TIGON_F32 = 0,
  TIGON_BF16 = 1,
  TIGON_F16 = 2,
  TIGON_F64 = 3,
  TIGON_I32 = 4,
  TIGON_I64 = 5,
  TIGON_U8 = 6
};
enum tigon_device { TIGON_CPU = 0, TIGON_CUDA = 1 };
enum tigon_norm_casting { TIGON_NORM_LLAMA = 0, TIGON_NORM_GEMMA = 1, TIGON_NORM_NONE = 2 };
enum tigon_gelu { TIGON_GELU_TANH = 0, TIGON_GELU_ERF = 1 };
enum tigon_rope_pairing { TIGON_ROPE_HALF = 0, TIGON_ROPE_INTERLEAVED = 1 };
enum tigon_rope_scaling_kind {
  TIGON_ROPE_SCALING_NONE = 0,
  TIGON_ROPE_SCALING_LINEAR = 1,
  TIGON_ROPE_SCALING_LLAMA3 = 2,
  TIGON_ROPE_SCALING_YARN = 3
};
enum tigon_reduction { TIGON_REDUCTION_MEAN = 0, TIGON_REDUCTION_SUM = 1, TIGON_REDUCTION_NONE = 2 };
enum tigon_rounding { TIGON_ROUND_NEAREST = 0, TIGON_ROUND_STOCHASTIC = 1 };

#define TIGON_MAX_RANK 4

/* A strided view; strides count elements. All zero means absent, which is how optional tensors are left out. Data with
 * a rank of 0 is refused; one value is a tensor of rank 1 and size 1. */
typedef struct tigon_tensor {
  void* data;
  int32_t dtype; /* tigon_dtype */
  int32_t rank;  /* 1 to TIGON_MAX_RANK; 0, and data NULL: absent */
  int64_t sizes[TIGON_MAX_RANK];
  int64_t strides[TIGON_MAX_RANK];
} tigon_tensor;

/* Where and how a call runs. All tensors of the call are on this device. */
typedef struct tigon_context {
  uint32_t struct_size;
  int32_t device; /* tigon_device */
  int32_t device_index;
  int32_t threads; /* CPU threads, 0: all; results do not depend on it */
  void* stream;    /* cudaStream_t */
  void* scratch;   /* memory on the device, of at least what the _scratch function says for the same context */
  int64_t scratch_bytes;
} tigon_context;
#define TIGON_CONTEXT_INIT \
  { .struct_size = sizeof(tigon_context) }

/* "0.1.0" */
TIGON_API const char* tigon_version(void);
/* What went wrong in this thread's last failed call; never NULL. The text is valid until this thread's next failed
 * call: read it after the call, not in the same argument list. */
TIGON_API const char* tigon_last_error(void);

typedef struct tigon_rope_scaling {
  int32_t kind; /* tigon_rope_scaling_kind */
  double factor;
  double low_freq_factor;  /* llama3 */
  double high_freq_factor; /* llama3 */
  double original_max_position;
  double beta_fast;        /* yarn */
  double beta_slow;        /* yarn */
  double attention_factor; /* yarn; 0: 0.1*ln(factor) + 1 */
} tigon_rope_scaling;
#define TIGON_ROPE_SCALING_INIT                                                                      \
  {                                                                                                  \
    .factor = 1.0, .low_freq_factor = 1.0, .high_freq_factor = 4.0, .original_max_position = 8192.0, \
    .beta_fast = 32.0, .beta_slow = 1.0                                                              \
  }

/* x' = softcap*tanh(x/softcap);  L = (1-s)*w_y*(lse - x'_y) + (s/V)*sum_j w_j*(lse - x'_j) + z*lse^2 */
typedef struct tigon_cross_entropy_options {
  int64_t ignore_index;
  double label_smoothing; /* s */
  double z_loss;          /* z */
  double softcap;         /* 0: none; else from 1e-30 to 1e30 */
  int32_t reduction;      /* tigon_reduction */
} tigon_cross_entropy_options;
#define TIGON_CROSS_ENTROPY_OPTIONS_INIT \
  { .ignore_index = -100 }

/* All optional. With reduction none the first three are [tokens], else [1]. */
typedef struct tigon_cross_entropy_outputs {
  tigon_tensor loss;      /* f32 */
  tigon_tensor z_loss;    /* f32 */
  tigon_tensor accuracy;  /* f32 */
  tigon_tensor predicted; /* [tokens] i32 or i64 */
  tigon_tensor lse;       /* [tokens] f32 */
} tigon_cross_entropy_outputs;

/* How many tokens are worked on at a time; all zero: the default budget of the device. */
typedef struct tigon_chunk_rule {
  int64_t tokens;
  int64_t budget_bytes;
  int32_t liger; /* Liger's rule */
  int32_t lean;  /* panels of the vocabulary within the budget, a fourth product for the least memory */
} tigon_chunk_rule;

/* y = (x*rstd)*(offset + weight), rstd = 1/sqrt(mean(x^2) + eps) over each row. */
typedef struct tigon_rmsnorm_forward_args {
  uint32_t struct_size;
  tigon_tensor x;      /* [tokens, hidden] */
  tigon_tensor weight; /* [hidden], optional */
  tigon_tensor y;      /* [tokens, hidden]; may be x */
  tigon_tensor rstd;   /* [tokens] f32, optional; needed by backward */
  double eps;
  double offset;
  int32_t casting; /* tigon_norm_casting */
} tigon_rmsnorm_forward_args;
#define TIGON_RMSNORM_FORWARD_INIT \
  { .struct_size = sizeof(tigon_rmsnorm_forward_args), .eps = 1e-6, .casting = TIGON_NORM_LLAMA }
TIGON_API int tigon_rmsnorm_forward(const tigon_context* context, const tigon_rmsnorm_forward_args* args);
TIGON_API int tigon_rmsnorm_forward_scratch(const tigon_context* context, const tigon_rmsnorm_forward_args* args,
                                            int64_t* bytes);

/* dx and dweight of rmsnorm; what is absent is not computed. */
typedef struct tigon_rmsnorm_backward_args {
  uint32_t struct_size;
  tigon_tensor dy;      /* [tokens, hidden] */
  tigon_tensor x;       /* [tokens, hidden] */
  tigon_tensor weight;  /* [hidden], optional */
  tigon_tensor rstd;    /* [tokens] f32, from forward */
  tigon_tensor dx;      /* [tokens, hidden], optional; may be dy or x */
  tigon_tensor dweight; /* [hidden], optional */
  double offset;
  int32_t casting;            /* tigon_norm_casting */
  int32_t accumulate_dweight; /* add to dweight instead of overwriting it */
} tigon_rmsnorm_backward_args;
#define TIGON_RMSNORM_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_rmsnorm_backward_args), .casting = TIGON_NORM_LLAMA }
TIGON_API int tigon_rmsnorm_backward(const tigon_context* context, const tigon_rmsnorm_backward_args* args);
TIGON_API int tigon_rmsnorm_backward_scratch(const tigon_context* context, const tigon_rmsnorm_backward_args* args,
                                             int64_t* bytes);

/* residual_out = x + residual, y = rmsnorm(residual_out), in one pass. */
typedef struct tigon_add_rmsnorm_forward_args {
  uint32_t struct_size;
  tigon_tensor x;            /* [tokens, hidden] */
  tigon_tensor residual;     /* [tokens, hidden] */
  tigon_tensor weight;       /* [hidden], optional */
  tigon_tensor residual_out; /* [tokens, hidden]; may be x or residual */
  tigon_tensor y;            /* [tokens, hidden]; may be x */
  tigon_tensor rstd;         /* [tokens] f32, optional; needed by backward */
  double eps;
  double offset;
  int32_t casting; /* tigon_norm_casting */
} tigon_add_rmsnorm_forward_args;
#define TIGON_ADD_RMSNORM_FORWARD_INIT \
  { .struct_size = sizeof(tigon_add_rmsnorm_forward_args), .eps = 1e-6, .casting = TIGON_NORM_LLAMA }
TIGON_API int tigon_add_rmsnorm_forward(const tigon_context* context, const tigon_add_rmsnorm_forward_args* args);
TIGON_API int tigon_add_rmsnorm_forward_scratch(const tigon_context* context,
                                                const tigon_add_rmsnorm_forward_args* args, int64_t* bytes);

/* dx, the gradient of x and of residual alike, and dweight. */
typedef struct tigon_add_rmsnorm_backward_args {
  uint32_t struct_size;
  tigon_tensor dy;            /* [tokens, hidden] */
  tigon_tensor dresidual_out; /* [tokens, hidden], optional */
  tigon_tensor residual_out;  /* [tokens, hidden], from forward */
  tigon_tensor weight;        /* [hidden], optional */
  tigon_tensor rstd;          /* [tokens] f32, from forward */
  tigon_tensor dx;            /* [tokens, hidden]; may be dy or dresidual_out */
  tigon_tensor dweight;       /* [hidden], optional */
  double offset;
  int32_t casting; /* tigon_norm_casting */
  int32_t accumulate_dweight;
} tigon_add_rmsnorm_backward_args;
#define TIGON_ADD_RMSNORM_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_add_rmsnorm_backward_args), .casting = TIGON_NORM_LLAMA }
TIGON_API int tigon_add_rmsnorm_backward(const tigon_context* context, const tigon_add_rmsnorm_backward_args* args);
TIGON_API int tigon_add_rmsnorm_backward_scratch(const tigon_context* context,
                                                 const tigon_add_rmsnorm_backward_args* args, int64_t* bytes);

/* y = (x - mean)*rstd*weight + bias over each row. */
typedef struct tigon_layernorm_forward_args {
  uint32_t struct_size;
  tigon_tensor x;      /* [tokens, hidden] */
  tigon_tensor weight; /* [hidden], optional */
  tigon_tensor bias;   /* [hidden], optional */
  tigon_tensor y;      /* [tokens, hidden]; may be x */
  tigon_tensor mean;   /* [tokens] f32, optional; needed by backward */
  tigon_tensor rstd;   /* [tokens] f32, optional; needed by backward */
  double eps;
} tigon_layernorm_forward_args;
#define TIGON_LAYERNORM_FORWARD_INIT \
  { .struct_size = sizeof(tigon_layernorm_forward_args), .eps = 1e-5 }
TIGON_API int tigon_layernorm_forward(const tigon_context* context, const tigon_layernorm_forward_args* args);
TIGON_API int tigon_layernorm_forward_scratch(const tigon_context* context, const tigon_layernorm_forward_args* args,
                                              int64_t* bytes);

/* dx, dweight and dbias of layernorm; what is absent is not computed. */
typedef struct tigon_layernorm_backward_args {
  uint32_t struct_size;
  tigon_tensor dy;            /* [tokens, hidden] */
  tigon_tensor x;             /* [tokens, hidden] */
  tigon_tensor weight;        /* [hidden], optional */
  tigon_tensor mean;          /* [tokens] f32 */
  tigon_tensor rstd;          /* [tokens] f32 */
  tigon_tensor dx;            /* [tokens, hidden], optional; may be dy or x */
  tigon_tensor dweight;       /* [hidden], optional */
  tigon_tensor dbias;         /* [hidden], optional */
  int32_t accumulate_dweight; /* add to dweight and dbias */
} tigon_layernorm_backward_args;
#define TIGON_LAYERNORM_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_layernorm_backward_args) }
TIGON_API int tigon_layernorm_backward(const tigon_context* context, const tigon_layernorm_backward_args* args);
TIGON_API int tigon_layernorm_backward_scratch(const tigon_context* context, const tigon_layernorm_backward_args* args,
                                               int64_t* bytes);

/* Rotates q and k by their positions; tigon_rope_backward rotates back. */
typedef struct tigon_rope_args {
  uint32_t struct_size;
  tigon_tensor q;         /* [tokens, heads, D] or [batch, heads, seq, D] */
  tigon_tensor k;         /* the same with its own heads, optional */
  tigon_tensor q_out;     /* like q; may be q */
  tigon_tensor k_out;     /* like k; may be k */
  tigon_tensor cos;       /* [rows, rotary_dim/2 or rotary_dim], optional */
  tigon_tensor sin;       /* as cos */
  tigon_tensor positions; /* i32 or i64, optional: 0, 1, 2, ... */
  double theta;           /* used without tables */
  tigon_rope_scaling scaling;
  int64_t rotary_dim; /* 0: all of D */
  int32_t pairing;    /* tigon_rope_pairing */
} tigon_rope_args;
#define TIGON_ROPE_INIT                                                                           \
  {                                                                                               \
    .struct_size = sizeof(tigon_rope_args), .theta = 10000.0, .scaling = TIGON_ROPE_SCALING_INIT, \
    .pairing = TIGON_ROPE_HALF                                                                    \
  }
TIGON_API int tigon_rope_forward(const tigon_context* context, const tigon_rope_args* args);
TIGON_API int tigon_rope_forward_scratch(const tigon_context* context, const tigon_rope_args* args, int64_t* bytes);
TIGON_API int tigon_rope_backward(const tigon_context* context, const tigon_rope_args* args);
TIGON_API int tigon_rope_backward_scratch(const tigon_context* context, const tigon_rope_args* args, int64_t* bytes);

/* c = silu(a)*b. */
typedef struct tigon_swiglu_forward_args {
  uint32_t struct_size;
  tigon_tensor a; /* [tokens, F] the gate */
  tigon_tensor b; /* [tokens, F] */
  tigon_tensor c; /* [tokens, F]; may be a or b */
} tigon_swiglu_forward_args;
#define TIGON_SWIGLU_FORWARD_INIT \
  { .struct_size = sizeof(tigon_swiglu_forward_args) }
TIGON_API int tigon_swiglu_forward(const tigon_context* context, const tigon_swiglu_forward_args* args);
TIGON_API int tigon_swiglu_forward_scratch(const tigon_context* context, const tigon_swiglu_forward_args* args,
                                           int64_t* bytes);

/* da and db of swiglu; the activation is recomputed. */
typedef struct tigon_swiglu_backward_args {
  uint32_t struct_size;
  tigon_tensor dc; /* [tokens, F] */
  tigon_tensor a;  /* [tokens, F] */
  tigon_tensor b;  /* [tokens, F] */
  tigon_tensor da; /* [tokens, F]; may be a */
  tigon_tensor db; /* [tokens, F]; may be b */
  tigon_tensor c;  /* [tokens, F], optional: receives silu(a)*b again; may be dc */
} tigon_swiglu_backward_args;
#define TIGON_SWIGLU_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_swiglu_backward_args) }
TIGON_API int tigon_swiglu_backward(const tigon_context* context, const tigon_swiglu_backward_args* args);
TIGON_API int tigon_swiglu_backward_scratch(const tigon_context* context, const tigon_swiglu_backward_args* args,
                                            int64_t* bytes);

/* c = gelu(a)*b. */
typedef struct tigon_geglu_forward_args {
  uint32_t struct_size;
  tigon_tensor a; /* [tokens, F] the gate */
  tigon_tensor b; /* [tokens, F] */
  tigon_tensor c; /* [tokens, F]; may be a or b */
  int32_t gelu;   /* tigon_gelu */
} tigon_geglu_forward_args;
#define TIGON_GEGLU_FORWARD_INIT \
  { .struct_size = sizeof(tigon_geglu_forward_args), .gelu = TIGON_GELU_TANH }
TIGON_API int tigon_geglu_forward(const tigon_context* context, const tigon_geglu_forward_args* args);
TIGON_API int tigon_geglu_forward_scratch(const tigon_context* context, const tigon_geglu_forward_args* args,
                                          int64_t* bytes);

/* da and db of geglu; the activation is recomputed. */
typedef struct tigon_geglu_backward_args {
  uint32_t struct_size;
  tigon_tensor dc; /* [tokens, F] */
  tigon_tensor a;  /* [tokens, F] */
  tigon_tensor b;  /* [tokens, F] */
  tigon_tensor da; /* [tokens, F]; may be a */
  tigon_tensor db; /* [tokens, F]; may be b */
  tigon_tensor c;  /* [tokens, F], optional: receives gelu(a)*b again; may be dc */
  int32_t gelu;    /* tigon_gelu */
} tigon_geglu_backward_args;
#define TIGON_GEGLU_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_geglu_backward_args), .gelu = TIGON_GELU_TANH }
TIGON_API int tigon_geglu_backward(const tigon_context* context, const tigon_geglu_backward_args* args);
TIGON_API int tigon_geglu_backward_scratch(const tigon_context* context, const tigon_geglu_backward_args* args,
                                           int64_t* bytes);

/* y = softmax(scale*x) over each row. */
typedef struct tigon_softmax_forward_args {
  uint32_t struct_size;
  tigon_tensor x; /* [rows, columns] */
  tigon_tensor y; /* [rows, columns]; may be x */
  double scale;
} tigon_softmax_forward_args;
#define TIGON_SOFTMAX_FORWARD_INIT \
  { .struct_size = sizeof(tigon_softmax_forward_args), .scale = 1.0 }
TIGON_API int tigon_softmax_forward(const tigon_context* context, const tigon_softmax_forward_args* args);
TIGON_API int tigon_softmax_forward_scratch(const tigon_context* context, const tigon_softmax_forward_args* args,
                                            int64_t* bytes);

/* dx = scale*y*(dy - sum(dy*y)). */
typedef struct tigon_softmax_backward_args {
  uint32_t struct_size;
  tigon_tensor dy; /* [rows, columns] */
  tigon_tensor y;  /* [rows, columns], from forward */
  tigon_tensor dx; /* [rows, columns]; may be dy */
  double scale;
} tigon_softmax_backward_args;
#define TIGON_SOFTMAX_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_softmax_backward_args), .scale = 1.0 }
TIGON_API int tigon_softmax_backward(const tigon_context* context, const tigon_softmax_backward_args* args);
TIGON_API int tigon_softmax_backward_scratch(const tigon_context* context, const tigon_softmax_backward_args* args,
                                             int64_t* bytes);

/* The loss of given logits and, when dlogits is present, its gradient in the same pass. */
typedef struct tigon_cross_entropy_forward_args {
  uint32_t struct_size;
  tigon_tensor logits;       /* [tokens, V] */
  tigon_tensor target;       /* [tokens] i32 or i64 */
  tigon_tensor class_weight; /* [V] f32, optional */
  tigon_tensor token_scale;  /* [tokens] f32, optional */
  tigon_cross_entropy_options options;
  tigon_cross_entropy_outputs out;
  tigon_tensor dlogits; /* [tokens, V], optional; may be logits */
} tigon_cross_entropy_forward_args;
#define TIGON_CROSS_ENTROPY_FORWARD_INIT \
  { .struct_size = sizeof(tigon_cross_entropy_forward_args), .options = TIGON_CROSS_ENTROPY_OPTIONS_INIT }
TIGON_API int tigon_cross_entropy_forward(const tigon_context* context, const tigon_cross_entropy_forward_args* args);
TIGON_API int tigon_cross_entropy_forward_scratch(const tigon_context* context,
                                                  const tigon_cross_entropy_forward_args* args, int64_t* bytes);

/* dlogits under any upstream gradient; inputs are only read. */
typedef struct tigon_cross_entropy_backward_args {
  uint32_t struct_size;
  tigon_tensor dloss;        /* f32, [tokens] or [1] */
  tigon_tensor logits;       /* [tokens, V] */
  tigon_tensor target;       /* [tokens] */
  tigon_tensor class_weight; /* [V] f32, optional */
  tigon_tensor token_scale;  /* [tokens] f32, optional */
  tigon_tensor lse;          /* [tokens] f32, from forward */
  tigon_cross_entropy_options options;
  tigon_tensor dlogits; /* [tokens, V]; may be logits */
} tigon_cross_entropy_backward_args;
#define TIGON_CROSS_ENTROPY_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_cross_entropy_backward_args), .options = TIGON_CROSS_ENTROPY_OPTIONS_INIT }
TIGON_API int tigon_cross_entropy_backward(const tigon_context* context, const tigon_cross_entropy_backward_args* args);
TIGON_API int tigon_cross_entropy_backward_scratch(const tigon_context* context,
                                                   const tigon_cross_entropy_backward_args* args, int64_t* bytes);

/* y = x*weight^T + bias. */
typedef struct tigon_linear_forward_args {
  uint32_t struct_size;
  tigon_tensor x;      /* [tokens, in] */
  tigon_tensor weight; /* [out, in] */
  tigon_tensor bias;   /* [out], optional */
  tigon_tensor y;      /* [tokens, out] */
} tigon_linear_forward_args;
#define TIGON_LINEAR_FORWARD_INIT \
  { .struct_size = sizeof(tigon_linear_forward_args) }
TIGON_API int tigon_linear_forward(const tigon_context* context, const tigon_linear_forward_args* args);
TIGON_API int tigon_linear_forward_scratch(const tigon_context* context, const tigon_linear_forward_args* args,
                                           int64_t* bytes);

/* dx = dy*weight, dweight = dy^T*x, dbias = sum of dy; what is absent is not computed. */
typedef struct tigon_linear_backward_args {
  uint32_t struct_size;
  tigon_tensor dy;      /* [tokens, out] */
  tigon_tensor x;       /* [tokens, in]; needed for dweight */
  tigon_tensor weight;  /* [out, in]; needed for dx */
  tigon_tensor dx;      /* [tokens, in], optional */
  tigon_tensor dweight; /* [out, in], optional */
  tigon_tensor dbias;   /* [out], optional */
  int32_t accumulate_dx;
  int32_t accumulate_dweight; /* add to dweight and dbias */
} tigon_linear_backward_args;
#define TIGON_LINEAR_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_linear_backward_args) }
TIGON_API int tigon_linear_backward(const tigon_context* context, const tigon_linear_backward_args* args);
TIGON_API int tigon_linear_backward_scratch(const tigon_context* context, const tigon_linear_backward_args* args,
                                            int64_t* bytes);

/* cross_entropy of x*weight^T + bias without the [tokens, V] logits, loss and gradients in one call.
 * tigon_fused_linear_cross_entropy_backward gives the gradients alone, for a dloss not known in forward. */
typedef struct tigon_fused_linear_cross_entropy_args {
  uint32_t struct_size;
  tigon_tensor x;            /* [tokens, hidden] */
  tigon_tensor weight;       /* [V, hidden] */
  tigon_tensor bias;         /* [V], optional */
  tigon_tensor target;       /* [tokens] i32 or i64 */
  tigon_tensor class_weight; /* [V] f32, optional */
  tigon_tensor token_scale;  /* [tokens] f32, optional */
  tigon_tensor dloss;        /* f32 [1] or [tokens], optional: upstream gradient */
  tigon_cross_entropy_options options;
  tigon_chunk_rule chunk;
  tigon_cross_entropy_outputs out;
  tigon_tensor dx;            /* [tokens, hidden], optional */
  tigon_tensor dweight;       /* [V, hidden], f32 or x's type, optional */
  tigon_tensor dbias;         /* [V], optional */
  int32_t accumulate_dweight; /* add to dweight and dbias */
} tigon_fused_linear_cross_entropy_args;
#define TIGON_FUSED_LINEAR_CROSS_ENTROPY_INIT \
  { .struct_size = sizeof(tigon_fused_linear_cross_entropy_args), .options = TIGON_CROSS_ENTROPY_OPTIONS_INIT }
TIGON_API int tigon_fused_linear_cross_entropy_forward(const tigon_context* context,
                                                       const tigon_fused_linear_cross_entropy_args* args);
TIGON_API int tigon_fused_linear_cross_entropy_forward_scratch(const tigon_context* context,
                                                               const tigon_fused_linear_cross_entropy_args* args,
                                                               int64_t* bytes);
TIGON_API int tigon_fused_linear_cross_entropy_backward(const tigon_context* context,
                                                        const tigon_fused_linear_cross_entropy_args* args);
TIGON_API int tigon_fused_linear_cross_entropy_backward_scratch(const tigon_context* context,
                                                                const tigon_fused_linear_cross_entropy_args* args,
                                                                int64_t* bytes);

/* y[t] = scale*weight[ids[t]]. */
typedef struct tigon_embedding_forward_args {
  uint32_t struct_size;
  tigon_tensor ids;    /* [tokens] i32 or i64 */
  tigon_tensor weight; /* [V, hidden] */
  tigon_tensor y;      /* [tokens, hidden] */
  double scale;
} tigon_embedding_forward_args;
#define TIGON_EMBEDDING_FORWARD_INIT \
  { .struct_size = sizeof(tigon_embedding_forward_args), .scale = 1.0 }
TIGON_API int tigon_embedding_forward(const tigon_context* context, const tigon_embedding_forward_args* args);
TIGON_API int tigon_embedding_forward_scratch(const tigon_context* context, const tigon_embedding_forward_args* args,
                                              int64_t* bytes);

/* dweight[id] = scale*sum of the dy of its tokens, in order of position. */
typedef struct tigon_embedding_backward_args {
  uint32_t struct_size;
  tigon_tensor ids;     /* [tokens] */
  tigon_tensor dy;      /* [tokens, hidden] */
  tigon_tensor dweight; /* [V, hidden] */
  double scale;
  int32_t accumulate_dweight;
} tigon_embedding_backward_args;
#define TIGON_EMBEDDING_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_embedding_backward_args), .scale = 1.0 }
TIGON_API int tigon_embedding_backward(const tigon_context* context, const tigon_embedding_backward_args* args);
TIGON_API int tigon_embedding_backward_scratch(const tigon_context* context, const tigon_embedding_backward_args* args,
                                               int64_t* bytes);

/* o = softmax(scale*q*k^T + causal mask)*v, grouped heads, blocked. */
typedef struct tigon_attention_forward_args {
  uint32_t struct_size;
  tigon_tensor q;   /* [batch, seq, heads, D] */
  tigon_tensor k;   /* [batch, seq, kv_heads, D] */
  tigon_tensor v;   /* [batch, seq, kv_heads, D] */
  tigon_tensor o;   /* [batch, seq, heads, D] */
  tigon_tensor lse; /* [batch, heads, seq] f32, optional; needed by backward */
  double scale;     /* 0: 1/sqrt(D) */
  int32_t causal;
} tigon_attention_forward_args;
#define TIGON_ATTENTION_FORWARD_INIT \
  { .struct_size = sizeof(tigon_attention_forward_args), .causal = 1 }
TIGON_API int tigon_attention_forward(const tigon_context* context, const tigon_attention_forward_args* args);
TIGON_API int tigon_attention_forward_scratch(const tigon_context* context, const tigon_attention_forward_args* args,
                                              int64_t* bytes);

/* dq, dk and dv of attention. */
typedef struct tigon_attention_backward_args {
  uint32_t struct_size;
  tigon_tensor dout; /* [batch, seq, heads, D] */
  tigon_tensor q;
  tigon_tensor k;
  tigon_tensor v;
  tigon_tensor o;   /* from forward */
  tigon_tensor lse; /* from forward */
  tigon_tensor dq;  /* like q */
  tigon_tensor dk;  /* like k */
  tigon_tensor dv;  /* like v */
  double scale;     /* 0: 1/sqrt(D) */
  int32_t causal;
  int32_t racing; /* gradients may differ in their last bits from run to run, where that is faster */
} tigon_attention_backward_args;
#define TIGON_ATTENTION_BACKWARD_INIT \
  { .struct_size = sizeof(tigon_attention_backward_args), .causal = 1 }
TIGON_API int tigon_attention_backward(const tigon_context* context, const tigon_attention_backward_args* args);
TIGON_API int tigon_attention_backward_scratch(const tigon_context* context, const tigon_attention_backward_args* args,
                                               int64_t* bytes);

/* One AdamW update of a flat array of parameters, in place. */
typedef struct tigon_adamw_args {
  uint32_t struct_size;
  tigon_tensor param;      /* [n] f32, bf16 or f16 */
  tigon_tensor grad;       /* [n] */
  tigon_tensor m;          /* [n] f32 or bf16; or u8, and then v too */
  tigon_tensor v;          /* [n] f32 or bf16; or u8 */
  tigon_tensor param_copy; /* [n] f32, bf16 or f16, optional */
  tigon_tensor grad_scale; /* [1] f32, optional */
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  int64_t step;       /* counts from 1 */
  int32_t rounding;   /* tigon_rounding */
  uint32_t tensor_id; /* with seed and step: the random stream of stochastic rounding */
  uint64_t seed;
  int64_t first_element; /* index of param[0] in the whole tensor, for shards; with 8-bit states a multiple of 256 */
  tigon_tensor m_scale;  /* [ceil(n / 256)] f32, of m in 8 bits */
  tigon_tensor v_scale;  /* [ceil(n / 256)] f32, of v in 8 bits */
} tigon_adamw_args;
#define TIGON_ADAMW_INIT                                                                                       \
  {                                                                                                            \
    .struct_size = sizeof(tigon_adamw_args), .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 1, \
    .rounding = TIGON_ROUND_NEAREST                                                                            \
  }
TIGON_API int tigon_adamw(const tigon_context* context, const tigon_adamw_args* args);
TIGON_API int tigon_adamw_scratch(const tigon_context* context, const tigon_adamw_args* args, int64_t* bytes);

/* Many AdamW updates at once. */
typedef struct tigon_adamw_list_args {
  uint32_t struct_size;
  const tigon_adamw_args* updates; /* each started from TIGON_ADAMW_INIT */
  int64_t update_count;
} tigon_adamw_list_args;
#define TIGON_ADAMW_LIST_INIT \
  { .struct_size = sizeof(tigon_adamw_list_args) }
TIGON_API int tigon_adamw_list(const tigon_context* context, const tigon_adamw_list_args* args);
TIGON_API int tigon_adamw_list_scratch(const tigon_context* context, const tigon_adamw_list_args* args, int64_t* bytes);

/* norm of all tensors together and the factor that clips it to max_norm. */
typedef struct tigon_global_norm_args {
  uint32_t struct_size;
  const tigon_tensor* tensors; /* contiguous, any shapes */
  int64_t tensor_count;
  tigon_tensor norm; /* [1] f32 */
  tigon_tensor clip; /* [1] f32, optional */
  double max_norm;   /* 0: no clipping */
  double scale;
} tigon_global_norm_args;
#define TIGON_GLOBAL_NORM_INIT \
  { .struct_size = sizeof(tigon_global_norm_args), .scale = 1.0 }
TIGON_API int tigon_global_norm(const tigon_context* context, const tigon_global_norm_args* args);
TIGON_API int tigon_global_norm_scratch(const tigon_context* context, const tigon_global_norm_args* args,
                                        int64_t* bytes);

/* x = factor*x in place; a factor of exactly 1 leaves x alone, without a wait on the host. */
typedef struct tigon_scale_args {
  uint32_t struct_size;
  tigon_tensor x;      /* contiguous, any shape */
  tigon_tensor factor; /* [1] f32 */
} tigon_scale_args;
#define TIGON_SCALE_INIT \
  { .struct_size = sizeof(tigon_scale_args) }
TIGON_API int tigon_scale(const tigon_context* context, const tigon_scale_args* args);
TIGON_API int tigon_scale_scratch(const tigon_context* context, const tigon_scale_args* args, int64_t* bytes);

/* x into 4.127 bits an element, in the format of bitsandbytes' NF4 with double quantization, and back into y. */
typedef struct tigon_nf4_quantize_args {
  uint32_t struct_size;
  tigon_tensor x;            /* [n] f32, bf16 or f16 */
  tigon_tensor codes;        /* [ceil(n / 2)] u8, two in a byte, the even element's in the upper half */
  tigon_tensor scale_codes;  /* [ceil(n / 64)] u8 */
  tigon_tensor group_scales; /* [ceil(n / 16384)] f32 */
  tigon_tensor offset;       /* [1] f32 */
} tigon_nf4_quantize_args;
#define TIGON_NF4_QUANTIZE_INIT \
  { .struct_size = sizeof(tigon_nf4_quantize_args) }
TIGON_API int tigon_nf4_quantize(const tigon_context* context, const tigon_nf4_quantize_args* args);
TIGON_API int tigon_nf4_quantize_scratch(const tigon_context* context, const tigon_nf4_quantize_args* args,
                                         int64_t* bytes);
typedef struct tigon_nf4_dequantize_args {
  uint32_t struct_size;
  tigon_tensor codes;        /* as above */
  tigon_tensor scale_codes;  /* as above */
  tigon_tensor group_scales; /* as above */
  tigon_tensor offset;       /* as above */
  tigon_tensor y;            /* [n] f32, bf16 or f16 */
} tigon_nf4_dequantize_args;
#define TIGON_NF4_DEQUANTIZE_INIT \
  { .struct_size = sizeof(tigon_nf4_dequantize_args) }
TIGON_API int tigon_nf4_dequantize(const tigon_context* context, const tigon_nf4_dequantize_args* args);
TIGON_API int tigon_nf4_dequantize_scratch(const tigon_context* context, const tigon_nf4_dequantize_args* args,
                                           int64_t* bytes);

#ifdef __cplusplus
}
#endif

#endif /* TIGON_TIGON_H_ */
