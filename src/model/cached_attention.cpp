// Attention of generation. The tokens of a prompt see each other by the op that training runs; one more token sees the
// cache by two products and a softmax for each head of keys. The products are with the whole cache, whose end is zeros,
// so that a pass takes the same memory however long the sequence is.
#include <cmath>

#include "model/stages.hpp"
#include "tigon/ops/attention.hpp"
#include "tigon/ops/elementary.hpp"
#include "tigon/ops/linear.hpp"
#include "tigon/ops/softmax.hpp"

namespace tigon {

namespace {

// The tokens of one sequence, [batch, seq, heads, D] as [heads, seq, D].
Tensor sequence(const Tensor& heads, int64_t batch) {
  Tensor one = heads.slice(0, batch, batch + 1).transpose(1, 2);
  one.rank = 3;
  for (int i = 0; i < 3; ++i) {
    one.sizes[i] = one.sizes[i + 1];
    one.strides[i] = one.strides[i + 1];
  }
  return one;
}

// One row of a tensor of three dimensions.
Tensor matrix(const Tensor& t, int64_t row) {
  Tensor one = t.slice(0, row, row + 1);
  one.rank = 2;
  for (int i = 0; i < 2; ++i) {
    one.sizes[i] = one.sizes[i + 1];
    one.strides[i] = one.strides[i + 1];
  }
  return one;
}

// [batch, kv_heads, context, D] as that of one sequence.
Tensor of_sequence(const Tensor& cache, int64_t batch) {
  const Tensor one = cache.slice(0, batch, batch + 1);
  return one.reshape({one.sizes[1], one.sizes[2], one.sizes[3]});
}

void remember(const BlockRun& run, const HeadViews& heads) {
  const KeyValueCache& cache = *run.cache;
  for (int64_t b = 0; b < run.shape.batch; ++b) {
    const int64_t at = cache.lengths[static_cast<size_t>(b)];
    const auto copy = [&](const Tensor& from, const Tensor& to) {
      ops::unary(run.ctx, {.x = sequence(from, b), .y = of_sequence(to, b).slice(1, at, at + run.shape.seq)});
    };
    copy(heads.k, cache.keys);
    copy(heads.v, cache.values);
  }
}

// The queries that read one head of keys and values: [queries, D].
void attend(const BlockRun& run, const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& scores,
            int64_t seen, const Tensor& o) {
  const int64_t context = keys.sizes[0];
  ops::linear_forward(run.ctx, {.x = q, .weight = keys, .y = scores});
  const Tensor used = scores.slice(1, 0, seen);
  ops::softmax_forward(run.ctx,
                       {.x = used, .y = used, .scale = 1 / std::sqrt(static_cast<double>(run.shape.config.head_dim))});
  if (seen < context) {
    const Tensor rest = scores.slice(1, seen, context);
    ops::unary(run.ctx, {.x = rest, .y = rest, .alpha = 0});
  }
  ops::linear_backward(run.ctx, {.dy = scores, .weight = values, .dx = o});
}

void cached_attention_forward(const BlockRun& run) {
  const ModelConfig& c = run.shape.config;
  const KeyValueCache& cache = *run.cache;
  const HeadViews heads = heads_of(run);
  const Tensor o = heads_view(run.shape, run.values[Slot::attn], 0, c.heads);
  remember(run, heads);
  if (run.shape.seq > 1) return ops::attention_forward(run.ctx, {.q = heads.q, .k = heads.k, .v = heads.v, .o = o});
  const int64_t group = c.heads / c.kv_heads;
  const OwnedTensor scores(run.ctx, "scores", run.shape.dtype, {group, cache.keys.sizes[2]}, MemoryClass::activations);
  for (int64_t b = 0; b < run.shape.batch; ++b) {
    const Tensor keys = of_sequence(cache.keys, b), values = of_sequence(cache.values, b);
    // [heads, 1, D] as [heads, D].
    const Tensor q = matrix(sequence(heads.q, b).transpose(0, 1), 0), out = matrix(sequence(o, b).transpose(0, 1), 0);
    for (int64_t h = 0; h < c.kv_heads; ++h) {
      const int64_t first = h * group;
      attend(run, q.slice(0, first, first + group), matrix(keys, h), matrix(values, h), scores,
             cache.lengths[static_cast<size_t>(b)] + 1, out.slice(0, first, first + group));
    }
  }
}

}  // namespace

Stage cached_attention_stage(bool separate) {
  return {.id = StageId::attention,
          .reads = separate ? SlotSet{Slot::q, Slot::k, Slot::v} : SlotSet{Slot::qkv},
          .writes = {Slot::attn},
          .backward_reads = {},
          .grad_reads = {},
          .forward = cached_attention_forward,
          .backward = [](const BlockRun&) {}};
}

}  // namespace tigon
