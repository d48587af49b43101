// attention backward: the probabilities are rebuilt from lse, block by block. One task owns a key-value head with all
// its query heads, so dk and dv are summed in one order, in f32, by one thread.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_backward.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/attention-inl.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
// clang-format on

#include <atomic>

#include "tigon/core/error.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

struct BackwardScratch {
  float *q, *dout, *dq, *k, *v, *p, *ds, *delta, *dk, *dv;

  BackwardScratch(const AttentionShape& shape, FloatStack& stack)
      : q(stack.take(shape.block_rows * shape.dim)),
        dout(stack.take(shape.block_rows * shape.dim)),
        dq(stack.take(shape.block_rows * shape.dim)),
        k(stack.take(shape.block_keys * shape.dim)),
        v(stack.take(shape.block_keys * shape.dim)),
        p(stack.take(shape.block_rows * shape.score_stride)),
        ds(stack.take(shape.block_rows * shape.score_stride)),
        delta(stack.take(shape.block_rows)),
        dk(stack.take(shape.seq * shape.dim)),
        dv(stack.take(shape.seq * shape.dim)) {}
};

int64_t AttentionBackwardFloats(const AttentionShape& shape) {
  FloatStack counter(nullptr);
  (void)BackwardScratch(shape, counter);
  return counter.used();
}

// Scores into probabilities: e^(score − lse) where visible, 0 behind the mask.
TIGON_SIMD void probabilities_row(float* scores, const SeenKeys& seen, int64_t keys, float lse) {
  const V shift = set(lse);
  std::fill(scores, scores + seen.begin, 0.0f);
  float* const begin = scores + seen.begin;
  for_row(seen.end - seen.begin, [&](int64_t j, auto part) HWY_ATTR {
    store(exp_nonpositive(hn::Sub(load(begin + j, part), shift)), begin + j, part);
  });
  std::fill(scores + seen.end, scores + keys, 0.0f);
}

// dp into ds = p·(dp − delta).
TIGON_SIMD void score_gradient_row(const float* p, float* dp, int64_t keys, float delta) {
  const V shift = set(delta);
  for_row(keys, [&](int64_t j, auto part)
                    HWY_ATTR { store(hn::Mul(load(p + j, part), hn::Sub(load(dp + j, part), shift)), dp + j, part); });
}

void backward_block(const ops::AttentionBackward& args, const AttentionShape& shape, const QueryBlock& block,
                    const BackwardScratch& s, SmallGemm& gemm) {
  const int64_t rows = shape.group * block.count, dim = shape.dim, stride = shape.score_stride;
  // o is only needed for delta; it borrows the place of dq.
  read_group(args.o, shape, block, s.dq);
  read_group(args.dout, shape, block, s.dout);
  for (int64_t r = 0; r < rows; ++r) {
    s.delta[r] = sum_row(dim, [&](int64_t j, auto part) HWY_ATTR {
      return hn::Mul(load(s.dout + r * dim + j, part), load(s.dq + r * dim + j, part));
    });
  }
  read_group(args.q, shape, block, s.q);
  for (int64_t first = block.first_key; first < block.keys; first += shape.block_keys) {
    const int64_t keys = std::min(shape.block_keys, block.keys - first);
    read_rows(args.k, block.batch, block.kv_head, first, keys, s.k);
    read_rows(args.v, block.batch, block.kv_head, first, keys, s.v);
    gemm('N', 'T', rows, keys, dim, shape.scale, s.q, dim, s.k, dim, false, s.p, stride);
    gemm('N', 'T', rows, keys, dim, 1.0f, s.dout, dim, s.v, dim, false, s.ds, stride);
    for (int64_t r = 0; r < rows; ++r) {
      probabilities_row(s.p + r * stride, SeenKeys(block, args.causal, r, first, keys), keys,
                        args.lse.as<float>()[lse_index(shape, block, r)]);
      score_gradient_row(s.p + r * stride, s.ds + r * stride, keys, s.delta[r]);
    }
    gemm('T', 'N', keys, dim, rows, 1.0f, s.p, stride, s.dout, dim, true, s.dv + first * dim, dim);
    gemm('T', 'N', keys, dim, rows, shape.scale, s.ds, stride, s.q, dim, true, s.dk + first * dim, dim);
    gemm('N', 'N', rows, dim, keys, shape.scale, s.ds, stride, s.k, dim, first > block.first_key, s.dq, dim);
  }
  write_group(s.dq, args.dq, shape, block);
}

bool AttentionBackwardHead(const ops::AttentionBackward& args, const AttentionShape& shape, int64_t batch,
                           int64_t kv_head, float* memory) {
  FloatStack stack(memory);
  const BackwardScratch s(shape, stack);
  SmallGemm gemm;
  std::fill_n(s.dk, shape.seq * shape.dim, 0.0f);
  std::fill_n(s.dv, shape.seq * shape.dim, 0.0f);
  for (int64_t block = 0; block < shape.query_blocks(); ++block)
    backward_block(args, shape, QueryBlock(shape, args.causal, args.starts, batch, kv_head, block), s, gemm);
  write_rows(s.dk, args.dk, batch, kv_head, 0, shape.seq);
  write_rows(s.dv, args.dv, batch, kv_head, 0, shape.seq);
  return gemm.ok();
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(AttentionBackwardFloats);
HWY_EXPORT(AttentionBackwardHead);

void attention_backward(const Context& ctx, const ops::AttentionBackward& args) {
  const AttentionShape shape(args.q, args.k, args.scale);
  const int64_t tasks = shape.batch * shape.kv_heads;
  const int64_t slots = std::min<int64_t>(thread_count(ctx), tasks);
  const int64_t slot_floats = HWY_DYNAMIC_DISPATCH(AttentionBackwardFloats)(shape);
  const Buffer scratch = ctx.scratch("attention_gradients", slots * slot_floats * 4);
  if (ctx.measuring()) return;
  const auto run = HWY_DYNAMIC_DISPATCH(AttentionBackwardHead);
  std::atomic<bool> ok = true;
  parallel_tasks(ctx, tasks, [&](int64_t task, int worker) {
    float* memory = scratch.as<float>() + worker * slot_floats;
    if (!run(args, shape, task / shape.kv_heads, task % shape.kv_heads, memory)) ok = false;
  });
  if (!ok) throw Error(ErrorCode::internal, {.where = "attention_backward", .what = "oneDNN refused a GEMM"});
}

}  // namespace tigon::cpu
#endif
