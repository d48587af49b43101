#pragma once

#include "backend/cuda/row_kernel.cuh"
#include "tigon/ops/cross_entropy.hpp"

// The loss of rows of logits: what cross_entropy and fused_linear_cross_entropy share. A call counts its targets first
// (loss_count), then sees each row whole (loss_rows) or panel by panel (loss_panel), then turns what the rows left
// behind into the outputs (loss_finish).
namespace tigon::cuda {

// Of the whole batch.
struct LossFactors {
  double entropy_scale;  // the reduction's factors
  double z_scale;
  double class_weight_sum;  // Σ_j w_j
  double inverse_count;     // 1 / counted tokens, or 0
  int64_t counted;
  float entropy, z, weights;  // the first three again, for the gradient
  unsigned finished;          // blocks that are through in the end
};

// Which token a row of logits belongs to, and its target; −1 where the row has no token that counts.
struct alignas(8) LossRow {
  int32_t token = -1;
  int32_t target = -1;
};

// What a row leaves behind.
struct RowStats {
  MaxSum soft;      // of x'
  float target;     // x'_y
  float weighted;   // Σ_j w_j·x'_j, with label smoothing
  float best;       // the largest x
  int64_t best_at;  // where it first stands

  // Everything but the target, which another thread writes.
  __device__ __forceinline__ void keep(const RowStats& found) {
    soft = found.soft;
    weighted = found.weighted;
    best = found.best;
    best_at = found.best_at;
  }
};

// A loss call as kernels see it.
struct LossBatch {
  const void* target;
  const float* class_weight;  // may be null
  const float* token_scale;   // may be null
  const float* dloss;         // may be null: 1
  LossFactors* factors;
  RowStats* stats;  // [tokens]; null where only gradients are asked for
  LossRow* rows;    // [tokens]: those that count, in order; null where every token is its own row
  int64_t tokens, vocab, ignore_index;
  double smoothing, z_loss;
  float softcap;
  bool wide_target;     // i64
  bool dloss_by_token;  // else one for all
  bool mean;
  bool wants_best;

  // No softcap and no label smoothing, so that class weights matter at the target alone.
  bool plain_gradient() const { return softcap == 0.0f && smoothing == 0.0; }
  // Nor does anybody ask where the largest logit is: code for that would only be in the way.
  bool plain() const { return plain_gradient() && !wants_best; }

  __device__ __forceinline__ int64_t target_of(int64_t token) const {
    return wide_target ? static_cast<const int64_t*>(target)[token] : static_cast<const int32_t*>(target)[token];
  }
  __device__ __forceinline__ LossRow row_at(int64_t i) const {
    if (rows != nullptr) return rows[i];
    const int64_t y = target_of(i);
    return counts(y) ? LossRow{static_cast<int32_t>(i), static_cast<int32_t>(y)} : LossRow{};
  }
  __device__ __forceinline__ bool in_range(int64_t y) const { return y >= 0 && y < vocab; }
  __device__ __forceinline__ bool counts(int64_t y) const { return y != ignore_index && in_range(y); }
  __device__ __forceinline__ double weight_of(int64_t y) const {
    return class_weight != nullptr ? static_cast<double>(class_weight[y]) : 1.0;
  }
  __device__ __forceinline__ double scale_of(int64_t token) const {
    return token_scale != nullptr ? static_cast<double>(token_scale[token]) : 1.0;
  }
  __device__ __forceinline__ float upstream_of(int64_t token) const {
    const float up = dloss != nullptr ? dloss[dloss_by_token ? token : 0] : 1.0f;
    return token_scale != nullptr ? up * token_scale[token] : up;
  }
  __device__ __forceinline__ float soft_cap(float x) const {
    return softcap == 0.0f ? x : softcap * tanhf(x / softcap);
  }
};

// What the arguments of all loss ops have in common.
template <class Args>
LossBatch loss_batch(const Args& args, int64_t tokens, int64_t vocab) {
  return {.target = args.target.data,
          .class_weight = args.class_weight ? args.class_weight.template as<float>() : nullptr,
          .token_scale = args.token_scale ? args.token_scale.template as<float>() : nullptr,
          .dloss = nullptr,
          .factors = nullptr,
          .stats = nullptr,
          .rows = nullptr,
          .tokens = tokens,
          .vocab = vocab,
          .ignore_index = args.options.ignore_index,
          .smoothing = args.options.label_smoothing,
          .z_loss = args.options.z_loss,
          .softcap = static_cast<float>(args.options.softcap),
          .wide_target = args.target.dtype == DType::i64,
          .dloss_by_token = false,
          .mean = args.options.reduction == ops::Reduction::mean,
          .wants_best = false};
}

// Fills batch.factors, and batch.rows where there are any.
void loss_count(const Context& ctx, const LossBatch& batch);

// Rows [first, first + rows) of the batch from their whole logits [rows, V]; the gradient goes to dlogits, which may be
// absent or the logits. Rows without a token that counts get a gradient of 0. `padded`: rows may be read and written up
// to the next multiple of 16 bytes. `just_counted`: the kernel before is that of loss_count, whose end only gradients
// have to wait for. Says whether loss_finish, if it comes next in the stream, may be launched early.
bool loss_rows(const Context& ctx, const LossBatch& batch, int64_t first, const Tensor& logits, const Tensor& dlogits,
               bool padded, bool just_counted);

// The same in two walks, from columns [first_class, …) of the logits at a time: stats are joined panel by panel (from
// the first, which begins them), and then, or from a given lse instead, the gradient of each panel is formed.
void loss_panel_stats(const Context& ctx, const LossBatch& batch, int64_t first, const Tensor& logits,
                      int64_t first_class, bool padded);
void loss_panel_gradient(const Context& ctx, const LossBatch& batch, int64_t first, const Tensor& logits,
                         int64_t first_class, const float* lse, const Tensor& dlogits, bool padded);

// The outputs of the call. `sums`: scratch of loss_sums_bytes(). `early`: what loss_rows has said, where its kernel is
// the one before.
void loss_finish(const Context& ctx, const LossBatch& batch, const ops::CrossEntropyOutputs& out,
                 ops::Reduction reduction, const Buffer& sums, bool early);
int64_t loss_sums_bytes(ops::Reduction reduction, int64_t tokens);

// Of rows whose maximum is known. Under a softcap values are no longer of the storage type.
template <class T, bool kPlain>
using RowExponential = std::conditional_t<kPlain, ExpFromLargest<T>, ExpFrom<T>>;

// dlogits_j = (softmax·e^(x'_j − shift) − every·w_j − at_target·[j = target]) · dx'_j/dx_j
template <class Exponential>
struct RowGradient {
  Exponential exponential;
  float softmax, every, at_target;
  int target;

  // p_j = e^(x'_j − shift) / sum.
  __device__ __forceinline__ RowGradient(const LossBatch& batch, int64_t token, int64_t y, float row_shift, float sum)
      : exponential(row_shift), target(static_cast<int>(y)) {
    const float upstream = batch.upstream_of(token);
    const float entropy = upstream * batch.factors->entropy;
    const auto smoothing = static_cast<float>(batch.smoothing);
    float of_target = 1.0f - smoothing;
    if (batch.class_weight != nullptr) of_target *= batch.class_weight[y];
    float all = of_target;
    every = 0.0f;
    if (smoothing > 0.0f) {
      const float per_class = smoothing / static_cast<float>(batch.vocab);
      all += per_class * batch.factors->weights;
      every = entropy * per_class;
    }
    float z = 0.0f;
    if (batch.z_loss != 0.0)
      z = 2.0f * upstream * batch.factors->z * static_cast<float>(batch.z_loss) * (row_shift + logf(sum));
    softmax = fmaf(entropy, all, z) / sum;
    at_target = entropy * of_target;
  }

  // Turns the logits of classes j, j + 1, … into their gradient. kShifted: the first may stand before class 0.
  template <bool kPlain, bool kShifted, int W>
  __device__ __forceinline__ void apply(const LossBatch& batch, int j, float (&v)[W]) const {
    float rest[W];
#pragma unroll
    for (int k = 0; k < W; ++k) {
      rest[k] = 0.0f;
      if constexpr (!kPlain) {
        if (kShifted && j + k < 0) continue;
        if (every != 0.0f && j + k < batch.vocab)
          rest[k] = batch.class_weight != nullptr ? every * batch.class_weight[j + k] : every;
      }
    }
    const auto here = static_cast<unsigned>(target - j);
    if (here < W) {
#pragma unroll
      for (int k = 0; k < W; ++k) {
        if (here == k) rest[k] += at_target;
      }
    }
#pragma unroll
    for (int k = 0; k < W; ++k) {
      if (kPlain || batch.softcap == 0.0f) {
        v[k] = fmaf(softmax, exponential(v[k]), -rest[k]);
      } else {
        const float t = tanhf(v[k] / batch.softcap);
        v[k] = fmaf(softmax, exponential(batch.softcap * t), -rest[k]) * fmaf(-t, t, 1.0f);
      }
    }
  }
};

// The running pair (largest, lowest index of it).
struct Best {
  float value;
  int64_t at;
};
struct JoinBest {
  __device__ __forceinline__ Best operator()(const Best& a, const Best& b) const {
    return b.value > a.value || (b.value == a.value && b.at < a.at) ? b : a;
  }
};
template <>
__device__ __forceinline__ Best warp_reduce(Best mine, JoinBest join) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    mine = join(mine,
                Best{__shfl_xor_sync(0xffffffffu, mine.value, offset), __shfl_xor_sync(0xffffffffu, mine.at, offset)});
  }
  return mine;
}

struct SearchShared {
  float weighted[kMaxTeam * kRowWarps];
  Best best[kMaxTeam * kRowWarps];
};

// What a team finds in its row, or in the panel of it that begins at `first_class`. All threads get it; `target` is
// left out. Each block asks `row.inside` of its own share: what fills the last vectors of that share is not a class of
// the next block's.
template <class T, bool kPlain, class Row>
__device__ __forceinline__ RowStats search_row(const LossBatch& batch, Team& team, const Row& row, int first_class,
                                               SearchShared& shared) {
  constexpr int W = Row::kWidth;
  RowStats stats;
  const float top = row.largest();
  MaxSum mine{kPlain ? top : batch.soft_cap(top), 0.0f};
  float weighted = 0.0f;
  const RowExponential<T, kPlain> exponential(mine.shift());
  row.for_each([&](int j, float(&v)[W]) {
#pragma unroll
    for (int k = 0; k < W; ++k) {
      if (!kPlain && row.inside(j + k)) {  // what only fills a vector stays −infinity
        v[k] = batch.soft_cap(v[k]);
        if (batch.smoothing > 0) {
          weighted += batch.class_weight != nullptr ? batch.class_weight[first_class + j + k] * v[k] : v[k];
        }
      }
      mine.sum += exponential(v[k]);
    }
  });
  stats.soft = team.join(mine);
  stats.weighted = !kPlain && batch.smoothing > 0 ? team.reduce(weighted, 0.0f, Sum(), shared.weighted) : 0.0f;
  Best best{lowest(), INT64_MAX};
  if (!kPlain && batch.wants_best) {
    row.for_each([&](int j, const float(&v)[W]) {
#pragma unroll
      for (int k = 0; k < W; ++k) {
        if (v[k] == top && best.at == INT64_MAX && row.inside(j + k)) best = {top, int64_t{first_class} + j + k};
      }
    });
    best = team.reduce(best, Best{lowest(), INT64_MAX}, JoinBest(), shared.best);
  }
  stats.best = best.value;
  stats.best_at = best.at;
  return stats;
}

// The row op of a loss, less the work itself.
template <class T, bool kPlain>
struct LossOp {
  using Info = LossRow;
  using Shared = SearchShared;
  static constexpr bool kLight = kPlain, kTeams = true;

  LossBatch batch;
  int64_t first;    // row of the batch that is row 0 of the logits
  int first_class;  // class of column 0

  __device__ __forceinline__ LossRow info(int64_t i) const { return batch.row_at(first + i); }
  __device__ __forceinline__ bool wanted(const LossRow& row) const { return row.token >= 0; }
  template <class Held>
  __device__ __forceinline__ float peek(const LossRow& row, const Held& held) const {
    const int column = row.target - first_class;
    return held.holds(column) ? batch.soft_cap(held.peek(column)) : 0.0f;
  }
  // By the thread that peeked, in the block that has the target.
  template <class Held>
  __device__ __forceinline__ void keep_target(const LossRow& row, const Held& held, float peeked) const {
    if (threadIdx.x == 0 && batch.stats != nullptr && held.holds(row.target - first_class))
      batch.stats[row.token].target = peeked;
  }
};

}  // namespace tigon::cuda
