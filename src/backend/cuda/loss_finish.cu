// Before and after the rows of a loss: what the reduction divides by, which tokens count, and the outputs.
#include "backend/cuda/loss.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 1024;
constexpr int kAhead = 8;  // targets that a thread has on their way at a time

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

// Where a token's results go; any may be null.
struct TokenOutputs {
  float* loss;
  float* z_loss;
  float* right;
  float* lse;
  void* predicted;
  bool wide_predicted;  // i64
};

// Sums over the tokens; any may be null.
struct LossSums {
  float* loss;
  float* z_loss;
  float* accuracy;
};

__device__ __forceinline__ void finish_token(const LossBatch& batch, const TokenOutputs& out, int64_t i) {
  const int64_t y = batch.target_of(i);
  float loss = 0.0f, z_loss = 0.0f, right = 0.0f, row_lse = 0.0f;
  int64_t predicted = -1;
  if (batch.counts(y)) {
    const RowStats stats = batch.stats[i];
    // Not lse − target: beside a large shift lse has no room for the logarithm.
    const auto shift = static_cast<double>(stats.soft.shift());
    const double log_sum = log(static_cast<double>(stats.soft.sum)), lse = shift + log_sum;
    double entropy =
        (1.0 - batch.smoothing) * batch.weight_of(y) * (log_sum + (shift - static_cast<double>(stats.target)));
    if (batch.smoothing > 0) {
      entropy += batch.smoothing / static_cast<double>(batch.vocab) *
                 (lse * batch.factors->class_weight_sum - static_cast<double>(stats.weighted));
    }
    const double scale = batch.scale_of(i);
    const double z = batch.factors->z_scale * scale * batch.z_loss * lse * lse;
    loss = static_cast<float>(batch.factors->entropy_scale * scale * entropy + z);
    z_loss = static_cast<float>(z);
    row_lse = static_cast<float>(lse);
    predicted = stats.best_at == INT64_MAX ? 0 : stats.best_at;  // 0: nothing but NaN and −infinity
    right = predicted == y ? 1.0f : 0.0f;
  } else if (y != batch.ignore_index) {
    loss = __int_as_float(0x7fc00000);  // the host could not look at the target: a wrong one shows as NaN
  }
  if (out.loss != nullptr) out.loss[i] = loss;
  if (out.z_loss != nullptr) out.z_loss[i] = z_loss;
  if (out.right != nullptr) out.right[i] = right;
  if (out.lse != nullptr) out.lse[i] = row_lse;
  if (out.predicted == nullptr) return;
  if (out.wide_predicted) {
    static_cast<int64_t*>(out.predicted)[i] = predicted;
  } else {
    static_cast<int32_t*>(out.predicted)[i] = static_cast<int32_t>(predicted);
  }
}

// A thread per token. The block that ends last adds up what all have left, in an order that does not depend on which
// one that is.
__global__ void __launch_bounds__(kThreads)
    loss_finish_kernel(const LossBatch batch, const TokenOutputs out, const LossSums sums) {
  __shared__ double shared[32];
  __shared__ bool last;
  const int64_t token = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (token < batch.tokens) finish_token(batch, out, token);
  if (sums.loss == nullptr && sums.z_loss == nullptr && sums.accuracy == nullptr) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&batch.factors->finished, 1u) + 1 == gridDim.x;
  __syncthreads();
  if (!last) return;
  __threadfence();
  const auto sum_up = [&](float* to, const float* values, double factor) {
    if (to == nullptr) return;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < batch.tokens; i += blockDim.x) sum += static_cast<double>(__ldcg(values + i));
    sum = block_reduce(sum, 0.0, Sum(), shared);
    if (threadIdx.x == 0) *to = static_cast<float>(factor * sum);
  };
  sum_up(sums.loss, out.loss, 1.0);
  sum_up(sums.z_loss, out.z_loss, 1.0);
  sum_up(sums.accuracy, out.right, batch.factors->inverse_count);
}

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

void loss_finish(const Context& ctx, const LossBatch& batch, const ops::CrossEntropyOutputs& out,
                 ops::Reduction reduction, float* token_losses) {
  TokenOutputs tokens{.loss = f32_or_null(out.loss),
                      .z_loss = f32_or_null(out.z_loss),
                      .right = f32_or_null(out.accuracy),
                      .lse = f32_or_null(out.lse),
                      .predicted = out.predicted ? out.predicted.data : nullptr,
                      .wide_predicted = out.predicted.dtype == DType::i64};
  LossSums sums{};
  if (reduction != ops::Reduction::none) {
    sums = {.loss = tokens.loss, .z_loss = tokens.z_loss, .accuracy = tokens.right};
    tokens.loss = token_losses;
    tokens.z_loss = token_losses + batch.tokens;
    tokens.right = token_losses + 2 * batch.tokens;
  }
  const int64_t blocks = std::max<int64_t>(1, divide_up(batch.tokens, kThreads));
  loss_finish_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(ctx)>>>(batch, tokens, sums);
  check_launch("cross entropy");
}

}  // namespace tigon::cuda
