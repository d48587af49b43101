// Before and after the rows of a loss: what the reduction divides by, which tokens count, and the outputs.
#include "backend/cuda/loss.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 1024;

// One block, a run of tokens to each thread: counts the targets and adds up the weights, each thread its own, then the
// threads in order; and says which row belongs to which token.
__global__ void __launch_bounds__(kThreads) loss_count_kernel(const LossBatch batch) {
  __shared__ double shared[32];
  __shared__ int warp_counts[32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t run = (batch.tokens + kThreads - 1) / kThreads;
  const int64_t begin = min(batch.tokens, threadIdx.x * run), end = min(batch.tokens, begin + run);
  double weights = 0, all_weights = 0;
  int mine = 0;
#pragma unroll 8
  for (int64_t i = begin; i < end; ++i) {
    const int64_t y = batch.target_of(i);
    if (!batch.counts(y)) continue;
    ++mine;
    weights += batch.weight_of(y);
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
  int64_t row = (warp > 0 ? earlier : 0) + before - mine;
#pragma unroll 8
  for (int64_t i = begin; i < end; ++i) {
    const int64_t y = batch.target_of(i);
    const bool counts = batch.counts(y);
    const LossRow made = counts ? LossRow{static_cast<int32_t>(i), static_cast<int32_t>(y)} : LossRow{};
    if (!batch.compact) {
      batch.rows[i] = made;
    } else if (counts) {
      batch.rows[row++] = made;
    }
  }
  if (batch.compact) {
    for (int64_t i = counted + threadIdx.x; i < batch.tokens; i += kThreads) batch.rows[i] = {};
  }
  if (batch.smoothing > 0) {
    for (int64_t j = threadIdx.x; j < batch.vocab; j += blockDim.x) all_weights += batch.weight_of(j);
    all_weights = block_reduce(all_weights, 0.0, Sum(), shared);
  }
  weights = block_reduce(weights, 0.0, Sum(), shared);
  if (threadIdx.x != 0) return;
  const double inverse_count = counted > 0 ? 1.0 / static_cast<double>(counted) : 0.0;
  LossFactors factors;
  factors.entropy_scale = 1.0;
  if (batch.mean) factors.entropy_scale = weights != 0 ? 1.0 / weights : 0.0;
  factors.z_scale = batch.mean ? inverse_count : 1.0;
  factors.class_weight_sum = all_weights;
  factors.inverse_count = inverse_count;
  factors.counted = counted;
  factors.entropy = static_cast<float>(factors.entropy_scale);
  factors.z = static_cast<float>(factors.z_scale);
  factors.weights = static_cast<float>(all_weights);
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

__global__ void __launch_bounds__(256) token_losses_kernel(const LossBatch batch, const TokenOutputs out) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= batch.tokens) return;
  const int64_t y = batch.target_of(i);
  float loss = 0.0f, z_loss = 0.0f, right = 0.0f, row_lse = 0.0f;
  int64_t predicted = -1;
  if (batch.counts(y)) {
    const RowStats stats = batch.stats[i];
    const double lse = static_cast<double>(stats.soft.shift()) + log(static_cast<double>(stats.soft.sum));
    double entropy = (1.0 - batch.smoothing) * batch.weight_of(y) * (lse - static_cast<double>(stats.target));
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

// One block: adds up the tokens' values.
__global__ void __launch_bounds__(kThreads)
    loss_sum_kernel(const float* loss, const float* z_loss, const float* right, int64_t tokens,
                    const LossFactors* factors, float* loss_out, float* z_loss_out, float* accuracy_out) {
  __shared__ double shared[32];
  const auto total = [&](const float* values) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < tokens; i += blockDim.x) sum += static_cast<double>(values[i]);
    return block_reduce(sum, 0.0, Sum(), shared);
  };
  if (loss_out != nullptr) {
    const double sum = total(loss);
    if (threadIdx.x == 0) *loss_out = static_cast<float>(sum);
  }
  if (z_loss_out != nullptr) {
    const double sum = total(z_loss);
    if (threadIdx.x == 0) *z_loss_out = static_cast<float>(sum);
  }
  if (accuracy_out != nullptr) {
    const double sum = total(right);
    if (threadIdx.x == 0) *accuracy_out = static_cast<float>(factors->inverse_count * sum);
  }
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
  const bool each = reduction == ops::Reduction::none;
  if (!each) {
    tokens.loss = token_losses;
    tokens.z_loss = token_losses + batch.tokens;
    tokens.right = token_losses + 2 * batch.tokens;
  }
  if (batch.tokens > 0) {
    token_losses_kernel<<<static_cast<unsigned>(divide_up(batch.tokens, 256)), 256, 0, stream_of(ctx)>>>(batch, tokens);
    check_launch("cross entropy");
  }
  if (each || !(out.loss || out.z_loss || out.accuracy)) return;
  loss_sum_kernel<<<1, kThreads, 0, stream_of(ctx)>>>(tokens.loss, tokens.z_loss, tokens.right, batch.tokens,
                                                      batch.factors, f32_or_null(out.loss), f32_or_null(out.z_loss),
                                                      f32_or_null(out.accuracy));
  check_launch("cross entropy");
}

}  // namespace tigon::cuda
