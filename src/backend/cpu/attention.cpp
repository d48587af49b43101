// attention forward: a block of queries walks over the blocks of keys with a running maximum and sum (online softmax),
// so only one block of scores exists at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/attention-inl.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
// clang-format on

#include <atomic>
#include <limits>

#include "tigon/core/error.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct ForwardScratch {
  float *q, *k, *v, *scores, *o, *largest, *sum;

  ForwardScratch(const AttentionShape& shape, FloatStack& stack)
      : q(stack.take(shape.block_rows * shape.dim)),
        k(stack.take(shape.block_keys * shape.dim)),
        v(stack.take(shape.block_keys * shape.dim)),
        scores(stack.take(shape.block_rows * shape.score_stride)),
        o(stack.take(shape.block_rows * shape.dim)),
        largest(stack.take(shape.block_rows)),
        sum(stack.take(shape.block_rows)) {}
};

int64_t AttentionForwardFloats(const AttentionShape& shape) {
  FloatStack counter(nullptr);
  (void)ForwardScratch(shape, counter);
  return counter.used();
}

// Turns a row of scores into e^(score − maximum) under the new running maximum, and brings sum and o to it.
TIGON_SIMD void online_softmax_row(float* scores, const SeenKeys& seen, int64_t keys, float* o, int64_t dim,
                                   float& largest, float& sum) {
  const int64_t step = lanes(), padded = (keys + step - 1) / step * step;
  std::fill(scores, scores + seen.begin, kMinusInfinity);  // what is masked becomes e^-inf = 0
  std::fill(scores + seen.end, scores + padded, kMinusInfinity);
  if (seen.begin == seen.end) return std::fill(scores, scores + keys, 0.0f);
  V row_max = set(largest);
  for (int64_t j = 0; j < padded; j += step) row_max = hn::Max(row_max, hn::LoadU(D(), scores + j));
  const float new_largest = hn::GetLane(hn::MaxOfLanes(D(), row_max));
  // Scores of -inf alone count nothing until a finite one comes.
  const V shift = set(new_largest == kMinusInfinity ? 0.0f : new_largest);
  const float row_sum = sum_row(padded, [&](int64_t j, auto part) HWY_ATTR {
    const V p = exp_nonpositive(hn::Sub(load(scores + j, part), shift));
    store(p, scores + j, part);
    return p;
  });
  const float shrink = largest == new_largest ? 1.0f : std::exp(largest - new_largest);
  sum = sum * shrink + row_sum;
  largest = new_largest;
  if (shrink == 1.0f) return;
  const V factor = set(shrink);
  for_row(dim, [&](int64_t j, auto part) HWY_ATTR { store(hn::Mul(load(o + j, part), factor), o + j, part); });
}

bool AttentionForwardBlock(const ops::AttentionForward& args, const AttentionShape& shape, const QueryBlock& block,
                           float* memory) {
  FloatStack stack(memory);
  const ForwardScratch s(shape, stack);
  const int64_t rows = shape.group * block.count, dim = shape.dim;
  SmallGemm gemm;
  read_group(args.q, shape, block, s.q);
  std::fill_n(s.o, rows * dim, 0.0f);
  std::fill_n(s.largest, rows, kMinusInfinity);
  std::fill_n(s.sum, rows, 0.0f);
  for (int64_t first = block.first_key; first < block.keys; first += shape.block_keys) {
    const int64_t keys = std::min(shape.block_keys, block.keys - first);
    read_rows(args.k, block.batch, block.kv_head, first, keys, s.k);
    read_rows(args.v, block.batch, block.kv_head, first, keys, s.v);
    gemm('N', 'T', rows, keys, dim, shape.scale, s.q, dim, s.k, dim, false, s.scores, shape.score_stride);
    for (int64_t r = 0; r < rows; ++r) {
      online_softmax_row(s.scores + r * shape.score_stride, SeenKeys(block, args.causal, r, first, keys), keys,
                         s.o + r * dim, dim, s.largest[r], s.sum[r]);
    }
    gemm('N', 'N', rows, dim, keys, 1.0f, s.scores, shape.score_stride, s.v, dim, true, s.o, dim);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const V factor = set(1.0f / s.sum[r]);
    float* o = s.o + r * dim;
    for_row(dim, [&](int64_t j, auto part) HWY_ATTR { store(hn::Mul(load(o + j, part), factor), o + j, part); });
    if (args.lse) args.lse.as<float>()[lse_index(shape, block, r)] = s.largest[r] + std::log(s.sum[r]);
  }
  write_group(s.o, args.o, shape, block);
  return gemm.ok();
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(AttentionForwardFloats);
HWY_EXPORT(AttentionForwardBlock);

void attention_forward(const Context& ctx, const ops::AttentionForward& args) {
  const AttentionShape shape(args.q, args.k, args.scale);
  const int64_t blocks = shape.query_blocks(), tasks = shape.batch * shape.kv_heads * blocks;
  const int64_t slots = std::min<int64_t>(thread_count(ctx), tasks);
  const int64_t slot_floats = HWY_DYNAMIC_DISPATCH(AttentionForwardFloats)(shape);
  const Buffer scratch = ctx.scratch("attention_blocks", slots * slot_floats * 4);
  if (ctx.measuring()) return;
  const auto run = HWY_DYNAMIC_DISPATCH(AttentionForwardBlock);
  std::atomic<bool> ok = true;
  parallel_tasks(ctx, tasks, [&](int64_t task, int worker) {
    // Late blocks see the most keys: they go first, so that no thread is left with a long one at the end.
    const int64_t head = task % (shape.batch * shape.kv_heads),
                  block = blocks - 1 - task / (shape.batch * shape.kv_heads);
    const QueryBlock queries(shape, args.causal, args.starts, head / shape.kv_heads, head % shape.kv_heads, block);
    if (!run(args, shape, queries, scratch.as<float>() + worker * slot_floats)) ok = false;
  });
  if (!ok) throw Error(ErrorCode::internal, {.where = "attention_forward", .what = "oneDNN refused a GEMM"});
}

}  // namespace tigon::cpu
#endif
