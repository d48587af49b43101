// Before and after the rows of a loss: what the reduction divides by, which tokens count, and the outputs.
#include <cuda/atomic>

#include "backend/cuda/loss.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 1024;
constexpr int kAhead = 8;            // targets that a thread has on their way at a time
constexpr int kFinishThreads = 256;  // few: a block finds room where one of the rows' ends, and many share the work

// One block, a run of tokens to each thread: counts the targets and adds up the weights, each thread its own, then the
// threads in order; and says which token belongs to which row.
__global__ void __launch_bounds__(kThreads) loss_count_kernel(const LossBatch batch) {
  __shared__ double shared[32];
  __shared__ int warp_counts[32];
  let_next_begin();
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t run = (batch.tokens + kThreads - 1) / kThreads;
  const int64_t begin = min(batch.tokens, threadIdx.x * run), end = min(batch.tokens, begin + run);
  double weights = 0, all_weights = 0;
  int mine = 0;
  for (int64_t i = begin; i < end; i += kAhead) {
    int64_t y[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) y[k] = i + k < end ? batch.target_of(i + k) : batch.ignore_index;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (!batch.counts(y[k])) continue;
      ++mine;
      if (batch.class_weight != nullptr) weights += batch.weight_of(y[k]);
    }
  }
  int before = mine;  // in the warp, up to and with this thread
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, before, offset);
    if (lane >= offset) before += other;
  }
  if (lane == 31) warp_counts[warp] = before;
  __syncthreads();
  int in_warps = warp_counts[lane];
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, in_warps, offset);
    if (lane >= offset) in_warps += other;
  }
  const int64_t counted = __shfl_sync(0xffffffffu, in_warps, 31);
  const int earlier = __shfl_sync(0xffffffffu, in_warps, (warp + 31) % 32);
  if (batch.rows != nullptr) {
    int64_t row = (warp > 0 ? earlier : 0) + before - mine;
#pragma unroll 8
    for (int64_t i = begin; i < end; ++i) {
      const int64_t y = batch.target_of(i);
      if (batch.counts(y)) batch.rows[row++] = {static_cast<int32_t>(i), static_cast<int32_t>(y)};
    }
    for (int64_t i = counted + threadIdx.x; i < batch.tokens; i += kThreads) batch.rows[i] = {};
  }
  if (batch.smoothing > 0) {
    for (int64_t j = threadIdx.x; j < batch.vocab; j += blockDim.x) all_weights += batch.weight_of(j);
    all_weights = block_reduce(all_weights, 0.0, Sum(), shared);
  }
  if (batch.class_weight != nullptr) weights = block_reduce(weights, 0.0, Sum(), shared);
  if (threadIdx.x != 0) return;
  const double inverse_count = counted > 0 ? 1.0 / static_cast<double>(counted) : 0.0;
  double inverse_weights = inverse_count;
  if (batch.class_weight != nullptr) inverse_weights = weights != 0 ? 1.0 / weights : 0.0;
  LossFactors factors;
  factors.entropy_scale = batch.mean ? inverse_weights : 1.0;
  factors.z_scale = batch.mean ? inverse_count : 1.0;
  factors.class_weight_sum = all_weights;
  factors.inverse_count = inverse_count;
  factors.counted = counted;
  factors.entropy = static_cast<float>(factors.entropy_scale);
  factors.z = static_cast<float>(factors.z_scale);
  factors.weights = static_cast<float>(all_weights);
  factors.finished = 0;
  *batch.factors = factors;
}

// As asked for: the first three of each token, or of all where there is a reduction. Any may be null.
struct LossOutputs {
  float* loss;
  float* z_loss;
  float* accuracy;
  float* lse;
  void* predicted;
  bool wide_predicted;  // i64

  template <class V>
  __device__ __forceinline__ void write(int64_t i, V of_loss, V of_z_loss, V right) const {
    if (loss != nullptr) loss[i] = static_cast<float>(of_loss);
    if (z_loss != nullptr) z_loss[i] = static_cast<float>(of_z_loss);
    if (accuracy != nullptr) accuracy[i] = static_cast<float>(right);
  }
};

struct TokenLoss {
  float loss, z_loss, right;
};

// Over tokens.
struct LossSums {
  double loss, z_loss, right;

  __device__ __forceinline__ LossSums operator+(const LossSums& o) const {
    return {loss + o.loss, z_loss + o.z_loss, right + o.right};
  }
};

}  // namespace

template <>
__device__ __forceinline__ LossSums warp_reduce(LossSums mine, Sum sum) {
  return {warp_reduce(mine.loss, sum), warp_reduce(mine.z_loss, sum), warp_reduce(mine.right, sum)};
}

namespace {

// `weight`: of class y, where the token counts.
__device__ __forceinline__ TokenLoss finish_token(const LossBatch& batch, const LossOutputs& out, int64_t i, int64_t y,
                                                  double weight) {
  TokenLoss token{};
  float row_lse = 0.0f;
  int64_t predicted = -1;
  if (batch.counts(y)) {
    const RowStats stats = batch.stats[i];
    const LossFactors factors = *batch.factors;  // on its way beside the stats
    const double scale = batch.scale_of(i);
    // Not lse − target: beside a large shift lse has no room for the logarithm.
    const auto shift = static_cast<double>(stats.soft.shift());
    const double log_sum = log(static_cast<double>(stats.soft.sum)), lse = shift + log_sum;
    double entropy = (1.0 - batch.smoothing) * weight * (log_sum + (shift - static_cast<double>(stats.target)));
    if (batch.smoothing > 0) {
      entropy += batch.smoothing / static_cast<double>(batch.vocab) *
                 (lse * factors.class_weight_sum - static_cast<double>(stats.weighted));
    }
    const double z = factors.z_scale * scale * batch.z_loss * lse * lse;
    row_lse = static_cast<float>(lse);
    predicted = stats.best_at == INT64_MAX ? 0 : stats.best_at;  // 0: nothing but NaN and −infinity
    token = {.loss = static_cast<float>(factors.entropy_scale * scale * entropy + z),
             .z_loss = static_cast<float>(z),
             .right = predicted == y ? 1.0f : 0.0f};
  } else if (y != batch.ignore_index) {
    token.loss = __int_as_float(0x7fc00000);  // the host could not look at the target: a wrong one shows as NaN
  }
  if (out.lse != nullptr) out.lse[i] = row_lse;
  if (out.predicted != nullptr && out.wide_predicted) {
    static_cast<int64_t*>(out.predicted)[i] = predicted;
  } else if (out.predicted != nullptr) {
    static_cast<int32_t*>(out.predicted)[i] = static_cast<int32_t>(predicted);
  }
  return token;
}

// A thread per token. With a reduction each block leaves the sums of its tokens in partials, and the one that ends last
// adds them up, in an order that does not depend on which one that is.
__global__ void __launch_bounds__(kFinishThreads)
    loss_finish_kernel(const LossBatch batch, const LossOutputs out, LossSums* partials) {
  __shared__ LossSums shared[32];
  __shared__ bool last;
  const int64_t i = int64_t{blockIdx.x} * kFinishThreads + threadIdx.x;
  // Inputs are there already: loss_count's launch has waited for them.
  const int64_t y = i < batch.tokens ? batch.target_of(i) : batch.ignore_index;
  const double weight = batch.counts(y) ? batch.weight_of(y) : 0.0;
  wait_for_previous();
  const TokenLoss token = i < batch.tokens ? finish_token(batch, out, i, y, weight) : TokenLoss{};
  if (partials == nullptr) {
    if (i < batch.tokens) out.write(i, token.loss, token.z_loss, token.right);
    return;
  }
  LossSums sums{static_cast<double>(token.loss), static_cast<double>(token.z_loss), static_cast<double>(token.right)};
  sums = block_reduce(sums, LossSums{}, Sum(), shared);
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = sums;
    const ::cuda::atomic_ref<unsigned, ::cuda::thread_scope_device> finished(batch.factors->finished);
    last = finished.fetch_add(1, ::cuda::memory_order_acq_rel) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!last) return;
  sums = {};
  for (unsigned b = threadIdx.x; b < gridDim.x; b += kFinishThreads) {
    const LossSums* of = partials + b;
    sums = sums + LossSums{__ldcg(&of->loss), __ldcg(&of->z_loss), __ldcg(&of->right)};
  }
  sums = block_reduce(sums, LossSums{}, Sum(), shared);
  if (threadIdx.x == 0) out.write(0, sums.loss, sums.z_loss, batch.factors->inverse_count * sums.right);
}

int64_t finish_blocks(int64_t tokens) { return std::max<int64_t>(1, divide_up(tokens, kFinishThreads)); }

float* f32_or_null(const Tensor& t) { return t.present() ? t.as<float>() : nullptr; }

}  // namespace

void loss_count(const Context& ctx, const LossBatch& batch) {
  if (batch.tokens > INT32_MAX || batch.vocab > kMaxColumns) {
    throw Error(ErrorCode::unsupported, {.where = "cross entropy on a GPU",
                                         .what = "too many tokens or classes",
                                         .expected = "fewer than 2^31 tokens and at most 2^30 classes"});
  }
  loss_count_kernel<<<1, kThreads, 0, stream_of(ctx)>>>(batch);
  check_launch("cross entropy");
}

int64_t loss_sums_bytes(ops::Reduction reduction, int64_t tokens) {
  return reduction == ops::Reduction::none ? 0 : finish_blocks(tokens) * static_cast<int64_t>(sizeof(LossSums));
}

void loss_finish(const Context& ctx, const LossBatch& batch, const ops::CrossEntropyOutputs& out,
                 ops::Reduction reduction, const Buffer& sums, bool early) {
  const LossOutputs outputs{.loss = f32_or_null(out.loss),
                            .z_loss = f32_or_null(out.z_loss),
                            .accuracy = f32_or_null(out.accuracy),
                            .lse = f32_or_null(out.lse),
                            .predicted = out.predicted ? out.predicted.data : nullptr,
                            .wide_predicted = out.predicted.dtype == DType::i64};
  LossSums* partials = reduction == ops::Reduction::none ? nullptr : sums.as<LossSums>();
  launch_early(ctx.device, early, stream_of(ctx), grid_size(finish_blocks(batch.tokens)), kFinishThreads, 0,
               loss_finish_kernel, batch, outputs, partials);
}

}  // namespace tigon::cuda
