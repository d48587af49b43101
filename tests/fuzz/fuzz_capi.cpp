// Hostile arguments against the C ABI: any mix of ranks, sizes, strides, types, pointers and options must give a result
// or a clear error, never undefined behaviour. Inputs that pass the checks run on real memory, so sanitizers see what
// they touch.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "tigon/tigon.h"

namespace {

// All tensors live in here; sizes are small, so that accepted calls stay short.
constexpr int64_t kPoolBytes = 1 << 16;

// The fuzzer's bytes as a stream of decisions; zeros when they run out.
class Source {
 public:
  Source(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t byte() { return position_ < size_ ? data_[position_++] : 0; }

  tigon_tensor tensor() {
    tigon_tensor t{};
    const uint8_t kind = byte();
    if (kind < 40) return t;  // absent
    t.dtype = kind < 60 ? static_cast<int8_t>(byte()) : kind < 120 ? 0 : kind % 7;
    t.rank = kind % 29 == 0 ? static_cast<int8_t>(byte()) : 1 + byte() % 4;
    int64_t stride = 1;
    for (int d = TIGON_MAX_RANK - 1; d >= 0; --d) {
      t.sizes[d] = extent();
      t.strides[d] = stride;
      if (d < t.rank && t.sizes[d] > 0 && t.sizes[d] < 1000) stride *= t.sizes[d];
    }
    // Strides above were laid out for rank 4; close the gap for lower ranks.
    if (t.rank >= 1 && t.rank <= TIGON_MAX_RANK) {
      stride = 1;
      for (int d = t.rank - 1; d >= 0; --d) {
        t.strides[d] = kind % 31 == 0 ? extreme() : stride;
        if (t.sizes[d] > 0 && t.sizes[d] < 1000) stride *= t.sizes[d];
      }
    }
    t.data = memory_for(t);
    return t;
  }

  const tigon_tensor* list(int64_t* count) {
    list_.clear();
    for (int i = byte() % 4; i > 0; --i) list_.push_back(tensor());
    *count = byte() < 10 ? -1 : static_cast<int64_t>(list_.size());
    return list_.data();
  }

  double real(double usual) {
    switch (byte()) {
      case 1: return std::numeric_limits<double>::quiet_NaN();
      case 2: return std::numeric_limits<double>::infinity();
      case 3: return -1.0;
      case 4: return 1e308;
      case 5: return 0.5;
      case 6: return 0.0;
      default: return usual;
    }
  }
  int64_t whole(int64_t usual) {
    const uint8_t kind = byte();
    return kind < 20 ? extreme() : kind < 60 ? byte() : usual;
  }
  int32_t choice(int32_t usual) {
    const uint8_t kind = byte();
    return kind < 10 ? static_cast<int8_t>(byte()) : kind < 100 ? kind % 4 : usual;
  }

 private:
  int64_t extent() {
    const uint8_t kind = byte();
    if (kind < 4) return extreme();
    return kind < 200 ? 1 + kind % 4 : kind % 20;  // mostly 1 to 4, so that sizes often agree
  }
  int64_t extreme() {
    constexpr int64_t kValues[] = {-1,
                                   0,
                                   1,
                                   2,
                                   std::numeric_limits<int64_t>::max(),
                                   std::numeric_limits<int64_t>::min(),
                                   int64_t{1} << 31,
                                   int64_t{1} << 62};
    return kValues[byte() % 8];
  }
  void* memory_for(const tigon_tensor& t) {
    alignas(256) static std::byte pool[kPoolBytes * 8];
    const uint8_t kind = byte();
    if (kind < 5) return nullptr;
    // What the tensor reaches must lie inside its slot of the pool, else it gets no memory at all.
    __int128 reach = 1;
    for (int d = 0; d < t.rank && d < TIGON_MAX_RANK; ++d) {
      if (t.sizes[d] > 1) reach += static_cast<__int128>(t.sizes[d] - 1) * t.strides[d];
    }
    if (reach < 0 || reach * 8 > kPoolBytes - 64) return nullptr;
    return pool + kPoolBytes * (kind % 8) + (kind < 12 ? 1 : 0);
  }

  const uint8_t* data_;
  size_t size_;
  size_t position_ = 0;
  std::vector<tigon_tensor> list_;
};

void fill(Source& in, tigon_rope_scaling& s) {
  s.kind = in.choice(s.kind);
  s.factor = in.real(s.factor);
  s.low_freq_factor = in.real(s.low_freq_factor);
  s.high_freq_factor = in.real(s.high_freq_factor);
  s.original_max_position = in.real(s.original_max_position);
  s.beta_fast = in.real(s.beta_fast);
  s.beta_slow = in.real(s.beta_slow);
  s.attention_factor = in.real(s.attention_factor);
}

void fill(Source& in, tigon_cross_entropy_options& o) {
  o.ignore_index = in.whole(o.ignore_index);
  o.label_smoothing = in.real(o.label_smoothing);
  o.z_loss = in.real(o.z_loss);
  o.softcap = in.real(o.softcap);
  o.reduction = in.choice(o.reduction);
}

void fill(Source& in, tigon_cross_entropy_outputs& o) {
  for (tigon_tensor* t : {&o.loss, &o.z_loss, &o.accuracy, &o.predicted, &o.lse}) *t = in.tensor();
}

void fill(Source& in, tigon_chunk_rule& r) {
  r.tokens = in.whole(r.tokens);
  r.budget_bytes = in.whole(r.budget_bytes);
  r.liger = in.choice(r.liger);
}

void fill(Source& in, tigon_rmsnorm_forward_args& a) {
  a.x = in.tensor();
  a.weight = in.tensor();
  a.y = in.tensor();
  a.rstd = in.tensor();
  a.eps = in.real(a.eps);
  a.offset = in.real(a.offset);
  a.casting = in.choice(a.casting);
}
void fill(Source& in, tigon_rmsnorm_backward_args& a) {
  a.dy = in.tensor();
  a.x = in.tensor();
  a.weight = in.tensor();
  a.rstd = in.tensor();
  a.dx = in.tensor();
  a.dweight = in.tensor();
  a.offset = in.real(a.offset);
  a.casting = in.choice(a.casting);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_add_rmsnorm_forward_args& a) {
  a.x = in.tensor();
  a.residual = in.tensor();
  a.weight = in.tensor();
  a.residual_out = in.tensor();
  a.y = in.tensor();
  a.rstd = in.tensor();
  a.eps = in.real(a.eps);
  a.offset = in.real(a.offset);
  a.casting = in.choice(a.casting);
}
void fill(Source& in, tigon_add_rmsnorm_backward_args& a) {
  a.dy = in.tensor();
  a.dresidual_out = in.tensor();
  a.residual_out = in.tensor();
  a.weight = in.tensor();
  a.rstd = in.tensor();
  a.dx = in.tensor();
  a.dweight = in.tensor();
  a.offset = in.real(a.offset);
  a.casting = in.choice(a.casting);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_layernorm_forward_args& a) {
  a.x = in.tensor();
  a.weight = in.tensor();
  a.bias = in.tensor();
  a.y = in.tensor();
  a.mean = in.tensor();
  a.rstd = in.tensor();
  a.eps = in.real(a.eps);
}
void fill(Source& in, tigon_layernorm_backward_args& a) {
  a.dy = in.tensor();
  a.x = in.tensor();
  a.weight = in.tensor();
  a.mean = in.tensor();
  a.rstd = in.tensor();
  a.dx = in.tensor();
  a.dweight = in.tensor();
  a.dbias = in.tensor();
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_rope_args& a) {
  a.q = in.tensor();
  a.k = in.tensor();
  a.q_out = in.tensor();
  a.k_out = in.tensor();
  a.cos = in.tensor();
  a.sin = in.tensor();
  a.positions = in.tensor();
  a.theta = in.real(a.theta);
  fill(in, a.scaling);
  a.rotary_dim = in.whole(a.rotary_dim);
  a.pairing = in.choice(a.pairing);
}
void fill(Source& in, tigon_swiglu_forward_args& a) {
  a.a = in.tensor();
  a.b = in.tensor();
  a.c = in.tensor();
}
void fill(Source& in, tigon_swiglu_backward_args& a) {
  a.dc = in.tensor();
  a.a = in.tensor();
  a.b = in.tensor();
  a.da = in.tensor();
  a.db = in.tensor();
  a.c = in.tensor();
}
void fill(Source& in, tigon_geglu_forward_args& a) {
  a.a = in.tensor();
  a.b = in.tensor();
  a.c = in.tensor();
  a.gelu = in.choice(a.gelu);
}
void fill(Source& in, tigon_geglu_backward_args& a) {
  a.dc = in.tensor();
  a.a = in.tensor();
  a.b = in.tensor();
  a.da = in.tensor();
  a.db = in.tensor();
  a.c = in.tensor();
  a.gelu = in.choice(a.gelu);
}
void fill(Source& in, tigon_softmax_forward_args& a) {
  a.x = in.tensor();
  a.y = in.tensor();
  a.scale = in.real(a.scale);
}
void fill(Source& in, tigon_softmax_backward_args& a) {
  a.dy = in.tensor();
  a.y = in.tensor();
  a.dx = in.tensor();
  a.scale = in.real(a.scale);
}
void fill(Source& in, tigon_cross_entropy_forward_args& a) {
  a.logits = in.tensor();
  a.target = in.tensor();
  a.class_weight = in.tensor();
  a.token_scale = in.tensor();
  fill(in, a.options);
  fill(in, a.out);
  a.dlogits = in.tensor();
}
void fill(Source& in, tigon_cross_entropy_backward_args& a) {
  a.dloss = in.tensor();
  a.logits = in.tensor();
  a.target = in.tensor();
  a.class_weight = in.tensor();
  a.token_scale = in.tensor();
  a.lse = in.tensor();
  fill(in, a.options);
  a.dlogits = in.tensor();
}
void fill(Source& in, tigon_linear_forward_args& a) {
  a.x = in.tensor();
  a.weight = in.tensor();
  a.bias = in.tensor();
  a.y = in.tensor();
}
void fill(Source& in, tigon_linear_backward_args& a) {
  a.dy = in.tensor();
  a.x = in.tensor();
  a.weight = in.tensor();
  a.dx = in.tensor();
  a.dweight = in.tensor();
  a.dbias = in.tensor();
  a.accumulate_dx = in.choice(a.accumulate_dx);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_fused_linear_cross_entropy_args& a) {
  a.x = in.tensor();
  a.weight = in.tensor();
  a.bias = in.tensor();
  a.target = in.tensor();
  a.class_weight = in.tensor();
  a.token_scale = in.tensor();
  a.dloss = in.tensor();
  fill(in, a.options);
  fill(in, a.chunk);
  fill(in, a.out);
  a.dx = in.tensor();
  a.dweight = in.tensor();
  a.dbias = in.tensor();
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_embedding_forward_args& a) {
  a.ids = in.tensor();
  a.weight = in.tensor();
  a.y = in.tensor();
  a.scale = in.real(a.scale);
}
void fill(Source& in, tigon_embedding_backward_args& a) {
  a.ids = in.tensor();
  a.dy = in.tensor();
  a.dweight = in.tensor();
  a.scale = in.real(a.scale);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_attention_forward_args& a) {
  a.q = in.tensor();
  a.k = in.tensor();
  a.v = in.tensor();
  a.o = in.tensor();
  a.lse = in.tensor();
  a.scale = in.real(a.scale);
  a.causal = in.choice(a.causal);
}
void fill(Source& in, tigon_attention_backward_args& a) {
  a.dout = in.tensor();
  a.q = in.tensor();
  a.k = in.tensor();
  a.v = in.tensor();
  a.o = in.tensor();
  a.lse = in.tensor();
  a.dq = in.tensor();
  a.dk = in.tensor();
  a.dv = in.tensor();
  a.scale = in.real(a.scale);
  a.causal = in.choice(a.causal);
}
void fill(Source& in, tigon_adamw_args& a) {
  a.param = in.tensor();
  a.grad = in.tensor();
  a.m = in.tensor();
  a.v = in.tensor();
  a.param_copy = in.tensor();
  a.grad_scale = in.tensor();
  a.lr = in.real(a.lr);
  a.beta1 = in.real(a.beta1);
  a.beta2 = in.real(a.beta2);
  a.eps = in.real(a.eps);
  a.weight_decay = in.real(a.weight_decay);
  a.step = in.whole(a.step);
  a.rounding = in.choice(a.rounding);
  a.tensor_id = in.choice(a.tensor_id);
  a.seed = in.whole(a.seed);
  a.first_element = in.whole(a.first_element);
}
void fill(Source& in, tigon_global_norm_args& a) {
  a.tensors = in.list(&a.tensor_count);
  a.norm = in.tensor();
  a.clip = in.tensor();
  a.max_norm = in.real(a.max_norm);
  a.scale = in.real(a.scale);
}

template <class Args>
int attempt(Source& in, Args args, int (*call)(const tigon_context*, const Args*),
            int (*scratch)(const tigon_context*, const Args*, int64_t*)) {
  fill(in, args);
  tigon_context context = TIGON_CONTEXT_INIT;
  context.threads = 1;
  int64_t bytes = 0;
  const int measured = scratch(&context, &args, &bytes);
  if (measured != TIGON_OK && *tigon_last_error() == 0) std::abort();  // an error without a word
  // A caller that gives the scratch it was told must not be told it is too small.
  if (measured == TIGON_OK && bytes <= int64_t{1} << 26) {
    std::vector<std::byte> memory(static_cast<size_t>(bytes));
    context.scratch = memory.data();
    context.scratch_bytes = bytes;
    const int result = call(&context, &args);
    if (result == TIGON_OUT_OF_MEMORY || result == TIGON_INTERNAL) std::abort();
    return result;
  }
  return call(&context, &args);
}

int dispatch(Source& in) {
  switch (in.byte() % 26) {
    case 0:
      return attempt<tigon_rmsnorm_forward_args>(in, TIGON_RMSNORM_FORWARD_INIT, tigon_rmsnorm_forward,
                                                 tigon_rmsnorm_forward_scratch);
    case 1:
      return attempt<tigon_rmsnorm_backward_args>(in, TIGON_RMSNORM_BACKWARD_INIT, tigon_rmsnorm_backward,
                                                  tigon_rmsnorm_backward_scratch);
    case 2:
      return attempt<tigon_add_rmsnorm_forward_args>(in, TIGON_ADD_RMSNORM_FORWARD_INIT, tigon_add_rmsnorm_forward,
                                                     tigon_add_rmsnorm_forward_scratch);
    case 3:
      return attempt<tigon_add_rmsnorm_backward_args>(in, TIGON_ADD_RMSNORM_BACKWARD_INIT, tigon_add_rmsnorm_backward,
                                                      tigon_add_rmsnorm_backward_scratch);
    case 4:
      return attempt<tigon_layernorm_forward_args>(in, TIGON_LAYERNORM_FORWARD_INIT, tigon_layernorm_forward,
                                                   tigon_layernorm_forward_scratch);
    case 5:
      return attempt<tigon_layernorm_backward_args>(in, TIGON_LAYERNORM_BACKWARD_INIT, tigon_layernorm_backward,
                                                    tigon_layernorm_backward_scratch);
    case 6: return attempt<tigon_rope_args>(in, TIGON_ROPE_INIT, tigon_rope_forward, tigon_rope_forward_scratch);
    case 7: return attempt<tigon_rope_args>(in, TIGON_ROPE_INIT, tigon_rope_backward, tigon_rope_backward_scratch);
    case 8:
      return attempt<tigon_swiglu_forward_args>(in, TIGON_SWIGLU_FORWARD_INIT, tigon_swiglu_forward,
                                                tigon_swiglu_forward_scratch);
    case 9:
      return attempt<tigon_swiglu_backward_args>(in, TIGON_SWIGLU_BACKWARD_INIT, tigon_swiglu_backward,
                                                 tigon_swiglu_backward_scratch);
    case 10:
      return attempt<tigon_geglu_forward_args>(in, TIGON_GEGLU_FORWARD_INIT, tigon_geglu_forward,
                                               tigon_geglu_forward_scratch);
    case 11:
      return attempt<tigon_geglu_backward_args>(in, TIGON_GEGLU_BACKWARD_INIT, tigon_geglu_backward,
                                                tigon_geglu_backward_scratch);
    case 12:
      return attempt<tigon_softmax_forward_args>(in, TIGON_SOFTMAX_FORWARD_INIT, tigon_softmax_forward,
                                                 tigon_softmax_forward_scratch);
    case 13:
      return attempt<tigon_softmax_backward_args>(in, TIGON_SOFTMAX_BACKWARD_INIT, tigon_softmax_backward,
                                                  tigon_softmax_backward_scratch);
    case 14:
      return attempt<tigon_cross_entropy_forward_args>(
          in, TIGON_CROSS_ENTROPY_FORWARD_INIT, tigon_cross_entropy_forward, tigon_cross_entropy_forward_scratch);
    case 15:
      return attempt<tigon_cross_entropy_backward_args>(
          in, TIGON_CROSS_ENTROPY_BACKWARD_INIT, tigon_cross_entropy_backward, tigon_cross_entropy_backward_scratch);
    case 16:
      return attempt<tigon_linear_forward_args>(in, TIGON_LINEAR_FORWARD_INIT, tigon_linear_forward,
                                                tigon_linear_forward_scratch);
    case 17:
      return attempt<tigon_linear_backward_args>(in, TIGON_LINEAR_BACKWARD_INIT, tigon_linear_backward,
                                                 tigon_linear_backward_scratch);
    case 18:
      return attempt<tigon_fused_linear_cross_entropy_args>(in, TIGON_FUSED_LINEAR_CROSS_ENTROPY_INIT,
                                                            tigon_fused_linear_cross_entropy_forward,
                                                            tigon_fused_linear_cross_entropy_forward_scratch);
    case 19:
      return attempt<tigon_fused_linear_cross_entropy_args>(in, TIGON_FUSED_LINEAR_CROSS_ENTROPY_INIT,
                                                            tigon_fused_linear_cross_entropy_backward,
                                                            tigon_fused_linear_cross_entropy_backward_scratch);
    case 20:
      return attempt<tigon_embedding_forward_args>(in, TIGON_EMBEDDING_FORWARD_INIT, tigon_embedding_forward,
                                                   tigon_embedding_forward_scratch);
    case 21:
      return attempt<tigon_embedding_backward_args>(in, TIGON_EMBEDDING_BACKWARD_INIT, tigon_embedding_backward,
                                                    tigon_embedding_backward_scratch);
    case 22:
      return attempt<tigon_attention_forward_args>(in, TIGON_ATTENTION_FORWARD_INIT, tigon_attention_forward,
                                                   tigon_attention_forward_scratch);
    case 23:
      return attempt<tigon_attention_backward_args>(in, TIGON_ATTENTION_BACKWARD_INIT, tigon_attention_backward,
                                                    tigon_attention_backward_scratch);
    case 24: return attempt<tigon_adamw_args>(in, TIGON_ADAMW_INIT, tigon_adamw, tigon_adamw_scratch);
    case 25:
      return attempt<tigon_global_norm_args>(in, TIGON_GLOBAL_NORM_INIT, tigon_global_norm, tigon_global_norm_scratch);
  }
  return 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Source in(data, size);
  (void)dispatch(in);
  return 0;
}
