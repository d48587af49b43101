// What attention's two directions share: blocks of rows in and out of f32, small GEMMs, the mask.
#if defined(TIGON_CPU_ATTENTION_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_ATTENTION_INL_
#undef TIGON_CPU_ATTENTION_INL_
#else
#define TIGON_CPU_ATTENTION_INL_
#endif

#include <dnnl.h>

#include "backend/cpu/attention.hpp"
#include "backend/cpu/math-inl.hpp"
#include "backend/cpu/pieces-inl.hpp"
#include "backend/cpu/signals.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// Rows [first, first + count) of one head of a [batch, seq, heads, D] tensor, as f32 in out.
inline void read_rows(const Tensor& t, int64_t batch, int64_t head, int64_t first, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t offset = batch * t.strides[0] + (first + i) * t.strides[1] + head * t.strides[2];
    copy_piece(t, offset, 1, t.sizes[3], out + i * t.sizes[3]);
  }
}

inline void write_rows(const float* values, const Tensor& t, int64_t batch, int64_t head, int64_t first,
                       int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t offset = batch * t.strides[0] + (first + i) * t.strides[1] + head * t.strides[2];
    write_piece(values + i * t.sizes[3], t, offset, 1, t.sizes[3]);
  }
}

// The block's rows of every head of the group, head after head.
inline void read_group(const Tensor& t, const AttentionShape& shape, const QueryBlock& block, float* out) {
  for (int64_t g = 0; g < shape.group; ++g) {
    read_rows(t, block.batch, block.kv_head * shape.group + g, block.first, block.count,
              out + g * block.count * shape.dim);
  }
}

inline void write_group(const float* values, const Tensor& t, const AttentionShape& shape, const QueryBlock& block) {
  for (int64_t g = 0; g < shape.group; ++g) {
    write_rows(values + g * block.count * shape.dim, t, block.batch, block.kv_head * shape.group + g, block.first,
               block.count);
  }
}

// Of the keys [first_key, first_key + keys) row r of the block sees [begin, end).
struct SeenKeys {
  int64_t begin, end;
  SeenKeys(const QueryBlock& block, bool causal, int64_t r, int64_t first_key, int64_t keys) : begin(0), end(keys) {
    const int64_t query = block.first + r % block.count;
    if (causal) end = std::clamp<int64_t>(query + 1 - first_key, 0, keys);
    if (block.starts != nullptr) begin = std::clamp<int64_t>(block.starts[query] - first_key, 0, end);
  }
};

// The index of row r's query in a [batch, heads, seq] tensor.
inline int64_t lse_index(const AttentionShape& shape, const QueryBlock& block, int64_t r) {
  const int64_t head = block.kv_head * shape.group + r / block.count;
  return (block.batch * shape.heads + head) * shape.seq + block.first + r % block.count;
}

// Row-major GEMMs that remember whether any of them failed: a task must not throw.
class SmallGemm {
 public:
  // c (+)= alpha·op(a)·op(b), where 'T' transposes.
  void operator()(char a_op, char b_op, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t a_stride,
                  const float* b, int64_t b_stride, bool accumulate, float* c, int64_t c_stride) {
    const SignalsHeld held;
    ok_ &= dnnl_sgemm(a_op, b_op, m, n, k, alpha, a, a_stride, b, b_stride, accumulate ? 1.0f : 0.0f, c, c_stride) ==
           dnnl_success;
  }
  bool ok() const { return ok_; }

 private:
  bool ok_ = true;
};

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
