// Hostile arguments against the C ABI: any mix of ranks, sizes, strides, types, pointers and options must give a result
// or a clear error, never undefined behaviour. Inputs that pass the checks run on real memory, so sanitizers see what
// they touch.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "tigon/ops/all.hpp"
#include "tigon/tigon.h"

namespace {

// What an op's argument is by its documentation.
enum class Kind { storage, statistic, index, code };
enum class Need { required, optional };

// The fuzzer's bytes as a stream of decisions; zeros when they run out. Most arguments come out as documented, so that
// calls get past the checks and sanitizers see them run; some come out wrong in every way a caller could think of.
class Source {
 public:
  Source(const uint8_t* data, size_t size) : data_(data), size_(size) {
    for (int64_t& extent : extents_) extent = 1 + byte() % 5;
    constexpr int32_t kTypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16, TIGON_F64};
    storage_ = kTypes[byte() % 4];
    hostility_ = byte() % 4 == 0 ? 24 : 0;  // of 256: how often an argument is not as documented
  }

  uint8_t byte() { return position_ < size_ ? data_[position_++] : 0; }

  // `dims` names the extents by letters: t tokens, h hidden, v vocabulary, b batch, q heads, k key-value heads, d head
  // size.
  tigon_tensor tensor(const char* dims, Kind kind, Need need = Need::required) {
    tigon_tensor t{};
    if (hostile() || (need == Need::optional && byte() % 2 == 0)) return t;
    t.rank = static_cast<int32_t>(std::strlen(dims));
    for (int d = 0; d < t.rank; ++d) t.sizes[d] = extent(dims[d]);
    t.dtype = kind == Kind::storage   ? storage_
              : kind == Kind::index   ? TIGON_I64
              : kind == Kind::code    ? TIGON_U8
              : storage_ == TIGON_F64 ? TIGON_F64
                                      : TIGON_F32;
    if (hostile()) t.dtype = byte() - 128;
    if (hostile()) t.rank = byte() - 128;
    if (hostile()) t.sizes[byte() % TIGON_MAX_RANK] = extreme();
    int64_t stride = 1;
    for (int d = std::min(t.rank, TIGON_MAX_RANK) - 1; d >= 0; --d) {
      t.strides[d] = hostile() ? extreme() : stride;
      if (t.sizes[d] > 0 && t.sizes[d] < 100) stride *= t.sizes[d];
      if (d == t.rank - 1 && byte() % 8 == 0) stride += 3;  // padded rows
    }
    t.data = memory_for(t);
    if (kind == Kind::index && t.data != nullptr && t.dtype == TIGON_I64 && t.rank == 1) {
      for (int64_t i = 0; i < t.sizes[0] && i < 8; ++i) {
        const int64_t value = hostile() ? extreme() : i % 2;
        std::memcpy(static_cast<std::byte*>(t.data) + i * 8, &value, 8);  // the pointer may be misaligned on purpose
      }
    }
    return t;
  }

  const tigon_tensor* list(int64_t* count) {
    list_.clear();
    for (int i = byte() % 4; i > 0; --i) list_.push_back(tensor("t", Kind::storage));
    *count = hostile() ? extreme() : static_cast<int64_t>(list_.size());
    if (*count > static_cast<int64_t>(list_.size())) *count = -1;  // a lie about its length cannot be found out
    return list_.data();
  }

  double real(double usual) {
    if (!hostile()) return usual;
    constexpr double kValues[] = {std::numeric_limits<double>::quiet_NaN(),
                                  std::numeric_limits<double>::infinity(),
                                  -1.0,
                                  1e308,
                                  1e-320,
                                  0.5,
                                  0.0,
                                  2.0};
    return kValues[byte() % 8];
  }
  int64_t whole(int64_t usual) { return hostile() ? extreme() : byte() % 4 == 0 ? byte() : usual; }
  int32_t choice(int32_t usual) {
    return hostile() ? static_cast<int8_t>(byte()) : byte() % 4 == 0 ? byte() % 3 : usual;
  }

 private:
  bool hostile() { return hostility_ > 0 && byte() < hostility_; }

  int64_t extent(char name) {
    if (name == '1') return 1;
    constexpr char kNames[] = "thvbqkd";
    const int64_t value = extents_[std::strchr(kNames, name) - kNames];
    return name == 'q'   ? value * extents_[5]
           : name == 'd' ? 2 * value
                         : value;  // heads in whole groups, an even head size
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
    constexpr int64_t kSlots = 32, kSlotBytes = 1 << 16;
    alignas(256) static std::byte pool[kSlots * kSlotBytes];
    if (hostile()) return nullptr;
    // What the tensor reaches must lie inside its slot, else it gets no memory at all.
    __int128 reach = 1;
    for (int d = 0; d < t.rank && d < TIGON_MAX_RANK; ++d) {
      if (t.strides[d] < 0) return nullptr;
      if (t.sizes[d] > 1) reach += static_cast<__int128>(t.sizes[d] - 1) * t.strides[d];
    }
    if (reach > kSlotBytes / 8 - 8) return nullptr;
    next_slot_ = hostile() ? byte() % kSlots : (next_slot_ + 1) % kSlots;  // sometimes on top of another tensor
    return pool + kSlotBytes * next_slot_ + (hostile() ? 1 : 0);
  }

  const uint8_t* data_;
  size_t size_;
  size_t position_ = 0;
  int64_t extents_[7];
  int32_t storage_;
  int hostility_;
  int64_t next_slot_ = 0;
  std::vector<tigon_tensor> list_;
};

void fill(Source& in, tigon_rope_scaling& s) {
  s.kind = in.choice(s.kind);
  for (double* value : {&s.factor, &s.low_freq_factor, &s.high_freq_factor, &s.original_max_position, &s.beta_fast,
                        &s.beta_slow, &s.attention_factor}) {
    *value = in.real(*value);
  }
}

void fill(Source& in, tigon_cross_entropy_options& o) {
  o.ignore_index = in.whole(o.ignore_index);
  o.label_smoothing = in.real(o.label_smoothing);
  o.z_loss = in.real(o.z_loss);
  o.softcap = in.real(o.softcap);
  o.reduction = in.choice(o.reduction);
}

void fill(Source& in, tigon_cross_entropy_outputs& o) {
  const char* dims = in.byte() % 4 == 0 ? "t" : "1";
  for (tigon_tensor* t : {&o.loss, &o.z_loss, &o.accuracy}) *t = in.tensor(dims, Kind::statistic, Need::optional);
  o.predicted = in.tensor("t", Kind::index, Need::optional);
  o.lse = in.tensor("t", Kind::statistic, Need::optional);
}

void fill(Source& in, tigon_chunk_rule& r) {
  r.tokens = in.whole(r.tokens);
  r.budget_bytes = in.whole(r.budget_bytes);
  r.liger = in.choice(r.liger);
  r.lean = in.choice(r.lean);
}

void fill(Source& in, tigon_rmsnorm_forward_args& a) {
  a = TIGON_RMSNORM_FORWARD_INIT;
  a.x = in.tensor("th", Kind::storage);
  a.weight = in.tensor("h", Kind::storage, Need::optional);
  a.y = in.tensor("th", Kind::storage);
  a.rstd = in.tensor("t", Kind::statistic, Need::optional);
  a.eps = in.real(a.eps);
  a.offset = in.real(a.offset);
  a.casting = in.choice(a.casting);
}
void fill(Source& in, tigon_rmsnorm_backward_args& a) {
  a = TIGON_RMSNORM_BACKWARD_INIT;
  a.dy = in.tensor("th", Kind::storage);
  a.x = in.tensor("th", Kind::storage);
  a.weight = in.tensor("h", Kind::storage, Need::optional);
  a.rstd = in.tensor("t", Kind::statistic);
  a.dx = in.tensor("th", Kind::storage, Need::optional);
  a.dweight = in.tensor("h", Kind::storage, Need::optional);
  a.offset = in.real(a.offset);
  a.casting = in.choice(a.casting);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_add_rmsnorm_forward_args& a) {
  a = TIGON_ADD_RMSNORM_FORWARD_INIT;
  a.x = in.tensor("th", Kind::storage);
  a.residual = in.tensor("th", Kind::storage);
  a.weight = in.tensor("h", Kind::storage, Need::optional);
  a.residual_out = in.tensor("th", Kind::storage);
  a.y = in.tensor("th", Kind::storage);
  a.rstd = in.tensor("t", Kind::statistic, Need::optional);
  a.eps = in.real(a.eps);
  a.offset = in.real(a.offset);
  a.casting = in.choice(a.casting);
}
void fill(Source& in, tigon_add_rmsnorm_backward_args& a) {
  a = TIGON_ADD_RMSNORM_BACKWARD_INIT;
  a.dy = in.tensor("th", Kind::storage);
  a.dresidual_out = in.tensor("th", Kind::storage, Need::optional);
  a.residual_out = in.tensor("th", Kind::storage);
  a.weight = in.tensor("h", Kind::storage, Need::optional);
  a.rstd = in.tensor("t", Kind::statistic);
  a.dx = in.tensor("th", Kind::storage);
  a.dweight = in.tensor("h", Kind::storage, Need::optional);
  a.offset = in.real(a.offset);
  a.casting = in.choice(a.casting);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_layernorm_forward_args& a) {
  a = TIGON_LAYERNORM_FORWARD_INIT;
  a.x = in.tensor("th", Kind::storage);
  a.weight = in.tensor("h", Kind::storage, Need::optional);
  a.bias = in.tensor("h", Kind::storage, Need::optional);
  a.y = in.tensor("th", Kind::storage);
  a.mean = in.tensor("t", Kind::statistic, Need::optional);
  a.rstd = in.tensor("t", Kind::statistic, Need::optional);
  a.eps = in.real(a.eps);
}
void fill(Source& in, tigon_layernorm_backward_args& a) {
  a = TIGON_LAYERNORM_BACKWARD_INIT;
  a.dy = in.tensor("th", Kind::storage);
  a.x = in.tensor("th", Kind::storage);
  a.weight = in.tensor("h", Kind::storage, Need::optional);
  a.mean = in.tensor("t", Kind::statistic);
  a.rstd = in.tensor("t", Kind::statistic);
  a.dx = in.tensor("th", Kind::storage, Need::optional);
  a.dweight = in.tensor("h", Kind::storage, Need::optional);
  a.dbias = in.tensor("h", Kind::storage, Need::optional);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_rope_args& a) {
  a = TIGON_ROPE_INIT;
  a.q = in.tensor("tqd", Kind::storage);
  a.k = in.tensor("tkd", Kind::storage, Need::optional);
  a.q_out = in.tensor("tqd", Kind::storage);
  a.k_out = in.tensor("tkd", Kind::storage);
  a.cos = in.tensor("td", Kind::statistic, Need::optional);
  a.sin = in.tensor("td", Kind::statistic, Need::optional);
  a.positions = in.tensor("t", Kind::index, Need::optional);
  a.theta = in.real(a.theta);
  fill(in, a.scaling);
  a.rotary_dim = in.whole(a.rotary_dim);
  a.pairing = in.choice(a.pairing);
}
void fill(Source& in, tigon_swiglu_forward_args& a) {
  a = TIGON_SWIGLU_FORWARD_INIT;
  a.a = in.tensor("th", Kind::storage);
  a.b = in.tensor("th", Kind::storage);
  a.c = in.tensor("th", Kind::storage);
}
void fill(Source& in, tigon_swiglu_backward_args& a) {
  a = TIGON_SWIGLU_BACKWARD_INIT;
  a.dc = in.tensor("th", Kind::storage);
  a.a = in.tensor("th", Kind::storage);
  a.b = in.tensor("th", Kind::storage);
  a.da = in.tensor("th", Kind::storage);
  a.db = in.tensor("th", Kind::storage);
  a.c = in.tensor("th", Kind::storage, Need::optional);
}
void fill(Source& in, tigon_geglu_forward_args& a) {
  a = TIGON_GEGLU_FORWARD_INIT;
  a.a = in.tensor("th", Kind::storage);
  a.b = in.tensor("th", Kind::storage);
  a.c = in.tensor("th", Kind::storage);
  a.gelu = in.choice(a.gelu);
}
void fill(Source& in, tigon_geglu_backward_args& a) {
  a = TIGON_GEGLU_BACKWARD_INIT;
  a.dc = in.tensor("th", Kind::storage);
  a.a = in.tensor("th", Kind::storage);
  a.b = in.tensor("th", Kind::storage);
  a.da = in.tensor("th", Kind::storage);
  a.db = in.tensor("th", Kind::storage);
  a.c = in.tensor("th", Kind::storage, Need::optional);
  a.gelu = in.choice(a.gelu);
}
void fill(Source& in, tigon_softmax_forward_args& a) {
  a = TIGON_SOFTMAX_FORWARD_INIT;
  a.x = in.tensor("tv", Kind::storage);
  a.y = in.tensor("tv", Kind::storage);
  a.scale = in.real(a.scale);
}
void fill(Source& in, tigon_softmax_backward_args& a) {
  a = TIGON_SOFTMAX_BACKWARD_INIT;
  a.dy = in.tensor("tv", Kind::storage);
  a.y = in.tensor("tv", Kind::storage);
  a.dx = in.tensor("tv", Kind::storage);
  a.scale = in.real(a.scale);
}
void fill(Source& in, tigon_cross_entropy_forward_args& a) {
  a = TIGON_CROSS_ENTROPY_FORWARD_INIT;
  a.logits = in.tensor("tv", Kind::storage);
  a.target = in.tensor("t", Kind::index);
  a.class_weight = in.tensor("v", Kind::statistic, Need::optional);
  a.token_scale = in.tensor("t", Kind::statistic, Need::optional);
  fill(in, a.options);
  fill(in, a.out);
  a.dlogits = in.tensor("tv", Kind::storage, Need::optional);
}
void fill(Source& in, tigon_cross_entropy_backward_args& a) {
  a = TIGON_CROSS_ENTROPY_BACKWARD_INIT;
  a.dloss = in.tensor("1", Kind::statistic);
  a.logits = in.tensor("tv", Kind::storage);
  a.target = in.tensor("t", Kind::index);
  a.class_weight = in.tensor("v", Kind::statistic, Need::optional);
  a.token_scale = in.tensor("t", Kind::statistic, Need::optional);
  a.lse = in.tensor("t", Kind::statistic);
  fill(in, a.options);
  a.dlogits = in.tensor("tv", Kind::storage);
}
void fill(Source& in, tigon_linear_forward_args& a) {
  a = TIGON_LINEAR_FORWARD_INIT;
  a.x = in.tensor("th", Kind::storage);
  a.weight = in.tensor("vh", Kind::storage);
  a.bias = in.tensor("v", Kind::storage, Need::optional);
  a.y = in.tensor("tv", Kind::storage);
}
void fill(Source& in, tigon_linear_backward_args& a) {
  a = TIGON_LINEAR_BACKWARD_INIT;
  a.dy = in.tensor("tv", Kind::storage);
  a.x = in.tensor("th", Kind::storage);
  a.weight = in.tensor("vh", Kind::storage);
  a.dx = in.tensor("th", Kind::storage, Need::optional);
  a.dweight = in.tensor("vh", Kind::storage, Need::optional);
  a.dbias = in.tensor("v", Kind::storage, Need::optional);
  a.accumulate_dx = in.choice(a.accumulate_dx);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_fused_linear_cross_entropy_args& a) {
  a = TIGON_FUSED_LINEAR_CROSS_ENTROPY_INIT;
  a.x = in.tensor("th", Kind::storage);
  a.weight = in.tensor("vh", Kind::storage);
  a.bias = in.tensor("v", Kind::storage, Need::optional);
  a.target = in.tensor("t", Kind::index);
  a.class_weight = in.tensor("v", Kind::statistic, Need::optional);
  a.token_scale = in.tensor("t", Kind::statistic, Need::optional);
  a.dloss = in.tensor("1", Kind::statistic, Need::optional);
  fill(in, a.options);
  fill(in, a.chunk);
  fill(in, a.out);
  a.dx = in.tensor("th", Kind::storage, Need::optional);
  a.dweight = in.tensor("vh", Kind::storage, Need::optional);
  a.dbias = in.tensor("v", Kind::storage, Need::optional);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_embedding_forward_args& a) {
  a = TIGON_EMBEDDING_FORWARD_INIT;
  a.ids = in.tensor("t", Kind::index);
  a.weight = in.tensor("vh", Kind::storage);
  a.y = in.tensor("th", Kind::storage);
  a.scale = in.real(a.scale);
}
void fill(Source& in, tigon_embedding_backward_args& a) {
  a = TIGON_EMBEDDING_BACKWARD_INIT;
  a.ids = in.tensor("t", Kind::index);
  a.dy = in.tensor("th", Kind::storage);
  a.dweight = in.tensor("vh", Kind::storage);
  a.scale = in.real(a.scale);
  a.accumulate_dweight = in.choice(a.accumulate_dweight);
}
void fill(Source& in, tigon_attention_forward_args& a) {
  a = TIGON_ATTENTION_FORWARD_INIT;
  a.q = in.tensor("btqd", Kind::storage);
  a.k = in.tensor("btkd", Kind::storage);
  a.v = in.tensor("btkd", Kind::storage);
  a.o = in.tensor("btqd", Kind::storage);
  a.lse = in.tensor("bqt", Kind::statistic, Need::optional);
  a.scale = in.real(a.scale);
  a.causal = in.choice(a.causal);
}
void fill(Source& in, tigon_attention_backward_args& a) {
  a = TIGON_ATTENTION_BACKWARD_INIT;
  a.dout = in.tensor("btqd", Kind::storage);
  a.q = in.tensor("btqd", Kind::storage);
  a.k = in.tensor("btkd", Kind::storage);
  a.v = in.tensor("btkd", Kind::storage);
  a.o = in.tensor("btqd", Kind::storage);
  a.lse = in.tensor("bqt", Kind::statistic);
  a.dq = in.tensor("btqd", Kind::storage);
  a.dk = in.tensor("btkd", Kind::storage);
  a.dv = in.tensor("btkd", Kind::storage);
  a.scale = in.real(a.scale);
  a.causal = in.choice(a.causal);
  a.racing = in.choice(a.racing);
}
void fill(Source& in, tigon_adamw_args& a) {
  a = TIGON_ADAMW_INIT;
  a.param = in.tensor("t", Kind::storage);
  a.grad = in.tensor("t", Kind::storage);
  const bool coded = in.byte() % 2 == 1;
  a.m = in.tensor("t", coded ? Kind::code : Kind::statistic);
  a.v = in.tensor("t", coded ? Kind::code : Kind::statistic);
  if (coded) {
    a.m_scale = in.tensor("1", Kind::statistic);  // extents are small: one block
    a.v_scale = in.tensor("1", Kind::statistic);
  }
  a.param_copy = in.tensor("t", Kind::storage, Need::optional);
  a.grad_scale = in.tensor("1", Kind::statistic, Need::optional);
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
void fill(Source& in, tigon_adamw_list_args& a) {
  static tigon_adamw_args updates[3];
  a = TIGON_ADAMW_LIST_INIT;
  a.update_count = in.whole(in.byte() % 4);
  const bool absent = in.byte() == 255;
  for (tigon_adamw_args& update : updates) fill(in, update);
  if (in.byte() == 255) updates[1].struct_size = in.byte();
  a.updates = absent ? nullptr : updates;
  if (a.update_count > 3) a.update_count = 3;  // nobody can tell how long the caller's memory is
}
void fill(Source& in, tigon_global_norm_args& a) {
  a = TIGON_GLOBAL_NORM_INIT;
  a.tensors = in.list(&a.tensor_count);
  a.norm = in.tensor("1", Kind::statistic);
  a.clip = in.tensor("1", Kind::statistic, Need::optional);
  a.max_norm = in.real(a.max_norm);
  a.scale = in.real(a.scale);
}
void fill(Source& in, tigon_scale_args& a) {
  a = TIGON_SCALE_INIT;
  a.x = in.tensor("th", Kind::storage);
  a.factor = in.tensor("1", Kind::statistic);
}
template <class Args>
void fill_nf4(Source& in, Args& a) {  // extents are small: one block, of at most two elements or of any number
  a.codes = in.tensor(in.byte() % 2 == 0 ? "1" : "t", Kind::code);
  a.scale_codes = in.tensor("1", Kind::code);
  a.group_scales = in.tensor("1", Kind::statistic);
  a.offset = in.tensor("1", Kind::statistic);
}
void fill(Source& in, tigon_nf4_quantize_args& a) {
  a = TIGON_NF4_QUANTIZE_INIT;
  a.x = in.tensor(in.byte() % 2 == 0 ? "1" : "t", Kind::storage);
  fill_nf4(in, a);
}
void fill(Source& in, tigon_nf4_dequantize_args& a) {
  a = TIGON_NF4_DEQUANTIZE_INIT;
  a.y = in.tensor(in.byte() % 2 == 0 ? "1" : "t", Kind::storage);
  fill_nf4(in, a);
}

template <class Args>
int attempt(Source& in, int (*call)(const tigon_context*, const Args*),
            int (*scratch)(const tigon_context*, const Args*, int64_t*)) {
  Args args;
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
#define TIGON_ATTEMPT(name, Args) [](Source& in) { return attempt(in, tigon_##name, tigon_##name##_scratch); },
  constexpr int (*kAttempts[])(Source&) = {TIGON_OPS(TIGON_ATTEMPT)};
#undef TIGON_ATTEMPT
  return kAttempts[in.byte() % std::size(kAttempts)](in);
}

}  // namespace

// How many inputs got past the checks; read by the random driver.
long tigon_fuzz_accepted = 0;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Source in(data, size);
  if (dispatch(in) == TIGON_OK) ++tigon_fuzz_accepted;
  return 0;
}
