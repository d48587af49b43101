// cross_entropy: one block per row of logits, which is read once and held in registers as far as it fits; the gradient
// leaves from there. What the mean divides by is counted by a kernel before, and reduced outputs are added up in order
// by a kernel after.
#include <algorithm>

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/softmax_row.cuh"

namespace tigon::cuda {

namespace {

constexpr int kReduceThreads = 1024;
constexpr int kManyLogits = 12;  // what registers have room for beside the search for the largest

// Of the whole batch.
struct LossFactors {
  double entropy_scale;  // the reduction's factors
  double z_scale;
  double class_weight_sum;  // Σ_j w_j
  double inverse_count;     // 1 / counted tokens, or 0
};

// The arguments that forward and backward share, as kernels see them.
struct LossInputs {
  const void* target;
  const float* class_weight;  // may be null
  const float* token_scale;   // may be null
  const LossFactors* factors;
  int64_t tokens, vocab, ignore_index;
  double smoothing, z_loss;
  float softcap;
  bool wide_target;  // i64
  bool mean;

  __device__ __forceinline__ int64_t target_of(int64_t token) const {
    return wide_target ? static_cast<const int64_t*>(target)[token] : static_cast<const int32_t*>(target)[token];
  }
  __device__ __forceinline__ bool in_range(int64_t y) const { return y >= 0 && y < vocab; }
  __device__ __forceinline__ double weight_of(int64_t y) const {
    return class_weight != nullptr ? static_cast<double>(class_weight[y]) : 1.0;
  }
  __device__ __forceinline__ double scale_of(int64_t token) const {
    return token_scale != nullptr ? static_cast<double>(token_scale[token]) : 1.0;
  }
};

// Where a token's results go; any may be null. The first three are the outputs themselves or scratch for the reduction.
struct LossOutputs {
  float* loss;
  float* z_loss;
  float* right;
  float* lse;
  void* predicted;
  bool wide_predicted;  // i64
  bool wants_predicted;

  __device__ __forceinline__ void write(int64_t token, float token_loss, float z, float is_right, float row_lse,
                                        int64_t best) const {
    if (loss != nullptr) loss[token] = token_loss;
    if (z_loss != nullptr) z_loss[token] = z;
    if (right != nullptr) right[token] = is_right;
    if (lse != nullptr) lse[token] = row_lse;
    if (predicted == nullptr) return;
    if (wide_predicted) {
      static_cast<int64_t*>(predicted)[token] = best;
    } else {
      static_cast<int32_t*>(predicted)[token] = static_cast<int32_t>(best);
    }
  }
};

// One block: counts the targets and adds up the weights, each thread its own, then the threads in order.
__global__ void __launch_bounds__(kReduceThreads) loss_factors_kernel(const LossInputs in, LossFactors* factors) {
  __shared__ double shared[32];
  double count = 0, weights = 0, all_weights = 0;
  for (int64_t i = threadIdx.x; i < in.tokens; i += blockDim.x) {
    const int64_t y = in.target_of(i);
    if (y == in.ignore_index || !in.in_range(y)) continue;
    count += 1;
    weights += in.weight_of(y);
  }
  if (in.smoothing > 0) {
    for (int64_t j = threadIdx.x; j < in.vocab; j += blockDim.x) all_weights += in.weight_of(j);
  }
  count = block_reduce(count, 0.0, Sum(), shared);
  weights = block_reduce(weights, 0.0, Sum(), shared);
  all_weights = block_reduce(all_weights, 0.0, Sum(), shared);
  if (threadIdx.x != 0) return;
  const double inverse_count = count > 0 ? 1.0 / count : 0.0;
  factors->entropy_scale = !in.mean ? 1.0 : weights != 0 ? 1.0 / weights : 0.0;
  factors->z_scale = in.mean ? inverse_count : 1.0;
  factors->class_weight_sum = all_weights;
  factors->inverse_count = inverse_count;
}

// One block: adds up the tokens' values.
__global__ void __launch_bounds__(kReduceThreads)
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

// dlogits_j = (softmax·e^(x'_j − shift) − every·w_j − at_target·[j = target]) · dx'_j/dx_j
struct RowGradient {
  float shift, softmax, every, at_target;
  int64_t target;

  // p_j = e^(x'_j − shift) / sum; `upstream` includes the token's scale.
  __device__ __forceinline__ RowGradient(const LossInputs& in, int64_t y, float row_shift, float sum, float lse,
                                         float upstream)
      : shift(row_shift), target(y) {
    const auto smoothing = static_cast<float>(in.smoothing);
    const float entropy = upstream * static_cast<float>(in.factors->entropy_scale);
    const float per_class = smoothing / static_cast<float>(in.vocab);
    const float of_target = (1.0f - smoothing) * static_cast<float>(in.weight_of(y));
    const float z = 2.0f * upstream * static_cast<float>(in.factors->z_scale) * static_cast<float>(in.z_loss) * lse;
    const float all = of_target + per_class * static_cast<float>(in.factors->class_weight_sum);
    softmax = fmaf(entropy, all, z) / sum;
    every = entropy * per_class;
    at_target = entropy * of_target;
  }

  // Turns logits into their gradient.
  template <class T, bool kPlain, int W>
  __device__ __forceinline__ void apply(const LossInputs& in, int64_t j, float (&v)[W]) const {
    float rest[W];
#pragma unroll
    for (int k = 0; k < W; ++k) {
      if constexpr (kPlain) {
        rest[k] = 0.0f;
      } else {
        rest[k] = in.class_weight != nullptr && every != 0.0f ? every * in.class_weight[j + k] : every;
      }
    }
    if (target >= j && target < j + W) {
#pragma unroll
      for (int k = 0; k < W; ++k) {
        if (target == j + k) rest[k] += at_target;
      }
    }
#pragma unroll
    for (int k = 0; k < W; ++k) {
      if (kPlain || in.softcap == 0.0f) {
        v[k] = fmaf(softmax, exp_for<T>(v[k] - shift), -rest[k]);
      } else {
        const float t = tanhf(v[k] / in.softcap);
        v[k] = fmaf(softmax, exp_for<T>(in.softcap * t - shift), -rest[k]) * fmaf(-t, t, 1.0f);
      }
    }
  }
};

__device__ __forceinline__ float soft_cap(const LossInputs& in, float x) {
  return in.softcap == 0.0f ? x : in.softcap * tanhf(x / in.softcap);
}

// What a thread finds in its part of a row.
struct RowSearch {
  MaxSum soft;            // of x'
  float max = lowest();   // of x: the cap could make ties
  int64_t at = -1;        // the first vector that holds it
  float weighted = 0.0f;  // Σ_j w_j·x'_j, where asked for
};

// kPlain: no softcap and no label smoothing, so that class weights matter at the target alone.
template <class T, int W, int NV, bool kPlain>
__global__ void __launch_bounds__(kRowThreads, NV <= kFewHeld ? 2 : 1)
    cross_entropy_forward_kernel(const LossInputs in, const LossOutputs out, Rows<const T> logits, Rows<T> dlogits) {
  __shared__ float shared[32];
  __shared__ int64_t shared_index[32];
  for (int64_t i = blockIdx.x; i < in.tokens; i += gridDim.x) {
    const int64_t y = in.target_of(i);
    if (y == in.ignore_index || !in.in_range(y)) {
      // The host could not look at the target: a wrong one shows as NaN.
      const float token_loss = y == in.ignore_index ? 0.0f : __int_as_float(0x7fc00000);
      if (threadIdx.x == 0) out.write(i, token_loss, 0.0f, 0.0f, 0.0f, -1);
      if (dlogits.data != nullptr) {
        const float zeros[W] = {};
        for (int64_t j = int64_t{threadIdx.x} * W; j < in.vocab; j += int64_t{blockDim.x} * W) {
          store<W>(dlogits.at(i) + j, zeros);
        }
      }
      continue;
    }
    const T* x = logits.at(i);
    const HeldRow<T, W, NV> row(x, in.vocab);
    // Before dlogits may be written over it; a barrier follows.
    const float target_logit = soft_cap(in, load_one(x + y));
    RowSearch mine;
    row.for_each([&](int64_t j, float(&v)[W]) {
      if constexpr (kPlain) {
        if (mine.soft.template add<T>(v)) mine.at = j;
      } else {
        float top = v[0];
#pragma unroll
        for (int k = 1; k < W; ++k) top = fmaxf(top, v[k]);
        if (top > mine.max) mine.max = top, mine.at = j;
#pragma unroll
        for (int k = 0; k < W; ++k) {
          v[k] = soft_cap(in, v[k]);
          if (in.smoothing > 0) {
            mine.weighted += in.class_weight != nullptr ? in.class_weight[j + k] * v[k] : v[k];
          }
        }
        mine.soft.template add<T>(v);
      }
    });
    if constexpr (kPlain) mine.max = mine.soft.max;
    const MaxSum all = block_max_sum(mine.soft, shared);
    const float weighted = !kPlain && in.smoothing > 0 ? block_reduce(mine.weighted, 0.0f, Sum(), shared) : 0.0f;
    int64_t best = 0;
    if (out.wants_predicted) {
      constexpr int64_t kNone = INT64_MAX;
      const float largest = kPlain ? all.max : block_reduce(mine.max, lowest(), Max(), shared);
      int64_t candidate = kNone;
      if (mine.at >= 0 && mine.max == largest) {
        for (int k = W - 1; k >= 0; --k) {
          if (load_one(x + mine.at + k) == largest) candidate = mine.at + k;
        }
      }
      best = block_reduce(candidate, kNone, Min(), shared_index);
      if (best == kNone) best = 0;  // nothing but NaN and −infinity
    }
    __syncthreads();  // a block of one warp had no barrier yet
    if (threadIdx.x == 0) {
      const double lse = static_cast<double>(all.shift()) + log(static_cast<double>(all.sum));
      double entropy = (1.0 - in.smoothing) * in.weight_of(y) * (lse - static_cast<double>(target_logit));
      if (in.smoothing > 0) {
        entropy += in.smoothing / static_cast<double>(in.vocab) *
                   (lse * in.factors->class_weight_sum - static_cast<double>(weighted));
      }
      const double scale = in.scale_of(i);
      const double z = in.factors->z_scale * scale * in.z_loss * lse * lse;
      out.write(i, static_cast<float>(in.factors->entropy_scale * scale * entropy + z), static_cast<float>(z),
                best == y ? 1.0f : 0.0f, static_cast<float>(lse), best);
    }
    if (dlogits.data == nullptr) continue;
    const RowGradient gradient(in, y, all.shift(), all.sum, all.shift() + logf(all.sum),
                               static_cast<float>(in.scale_of(i)));
    T* to = dlogits.at(i);
    row.for_each([&](int64_t j, float(&v)[W]) {
      gradient.template apply<T, kPlain>(in, j, v);
      store<W>(to + j, v);
    });
  }
}

// Rows by blockIdx.x, parts of a row by blockIdx.y.
template <class T, int W, bool kPlain>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_backward_kernel(const LossInputs in, const float* dloss, bool dloss_by_token, const float* lse,
                                  Rows<const T> logits, Rows<T> dlogits) {
  const int64_t step = int64_t{gridDim.y} * blockDim.x * W;
  for (int64_t i = blockIdx.x; i < in.tokens; i += gridDim.x) {
    const int64_t y = in.target_of(i);
    const T* x = logits.at(i);
    T* to = dlogits.at(i);
    const int64_t first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W;
    if (y == in.ignore_index || !in.in_range(y)) {
      const float zeros[W] = {};
      for (int64_t j = first; j < in.vocab; j += step) store<W>(to + j, zeros);
      continue;
    }
    const float upstream = dloss[dloss_by_token ? i : 0] * static_cast<float>(in.scale_of(i));
    const RowGradient gradient(in, y, lse[i], 1.0f, lse[i], upstream);
    for (int64_t j = first; j < in.vocab; j += step) {
      float v[W];
      load<W>(x + j, v);
      gradient.template apply<T, kPlain>(in, j, v);
      store<W>(to + j, v);
    }
  }
}

template <class Args>
LossInputs loss_inputs(const Args& args, const LossFactors* factors) {
  return {.target = args.target.data,
          .class_weight = args.class_weight ? args.class_weight.template as<float>() : nullptr,
          .token_scale = args.token_scale ? args.token_scale.template as<float>() : nullptr,
          .factors = factors,
          .tokens = args.logits.sizes[0],
          .vocab = args.logits.sizes[1],
          .ignore_index = args.options.ignore_index,
          .smoothing = args.options.label_smoothing,
          .z_loss = args.options.z_loss,
          .softcap = static_cast<float>(args.options.softcap),
          .wide_target = args.target.dtype == DType::i64,
          .mean = args.options.reduction == ops::Reduction::mean};
}

float* f32_or_null(const Tensor& t) { return t.present() ? t.as<float>() : nullptr; }

bool is_plain(const ops::CrossEntropyOptions& options) {
  return static_cast<float>(options.softcap) == 0.0f && options.label_smoothing == 0.0;
}

}  // namespace

void cross_entropy_forward(const Context& ctx, const ops::CrossEntropyForward& args) {
  const int64_t tokens = args.logits.sizes[0];
  const bool each = args.options.reduction == ops::Reduction::none;
  const Buffer scratch =
      ctx.scratch("token_losses", static_cast<int64_t>(sizeof(LossFactors)) + (each ? 0 : 3 * tokens * 4));
  if (ctx.measuring()) return;
  const DeviceGuard guard(ctx);
  auto* factors = scratch.as<LossFactors>();
  const LossInputs in = loss_inputs(args, factors);
  LossOutputs out{.loss = f32_or_null(args.out.loss),
                  .z_loss = f32_or_null(args.out.z_loss),
                  .right = f32_or_null(args.out.accuracy),
                  .lse = f32_or_null(args.out.lse),
                  .predicted = args.out.predicted ? args.out.predicted.data : nullptr,
                  .wide_predicted = args.out.predicted.dtype == DType::i64,
                  .wants_predicted = args.out.predicted.present() || args.out.accuracy.present()};
  if (!each) {
    out.loss = reinterpret_cast<float*>(factors + 1);
    out.z_loss = out.loss + tokens;
    out.right = out.z_loss + tokens;
  }
  loss_factors_kernel<<<1, kReduceThreads, 0, stream_of(ctx)>>>(in, factors);
  check_launch("cross_entropy_forward");
  if (tokens > 0) {
    dispatch("cross_entropy_forward", args.logits.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const bool aligned = rows_aligned(args.logits, args.dlogits);
      with_row_plan<T, kManyLogits>(tokens, in.vocab, aligned, [&](auto w, auto nv, const RowPlan& plan) {
        const auto run = is_plain(args.options) ? cross_entropy_forward_kernel<T, w, nv, true>
                                                : cross_entropy_forward_kernel<T, w, nv, false>;
        run<<<plan.blocks, plan.threads, 0, stream_of(ctx)>>>(in, out, rows_of<const T>(args.logits),
                                                              rows_of<T>(args.dlogits));
      });
    });
    check_launch("cross_entropy_forward");
  }
  if (each || !(args.out.loss || args.out.z_loss || args.out.accuracy)) return;
  loss_sum_kernel<<<1, kReduceThreads, 0, stream_of(ctx)>>>(out.loss, out.z_loss, out.right, tokens, factors,
                                                            f32_or_null(args.out.loss), f32_or_null(args.out.z_loss),
                                                            f32_or_null(args.out.accuracy));
  check_launch("cross_entropy_forward");
}

void cross_entropy_backward(const Context& ctx, const ops::CrossEntropyBackward& args) {
  const Buffer factors_buffer = ctx.scratch("loss_factors", static_cast<int64_t>(sizeof(LossFactors)));
  if (ctx.measuring() || args.logits.elements() == 0) return;
  const DeviceGuard guard(ctx);
  auto* factors = factors_buffer.as<LossFactors>();
  const LossInputs in = loss_inputs(args, factors);
  loss_factors_kernel<<<1, kReduceThreads, 0, stream_of(ctx)>>>(in, factors);
  check_launch("cross_entropy_backward");
  dispatch("cross_entropy_backward", args.logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto launch = [&](auto w) {
      const int64_t vectors = divide_up(in.vocab, w), threads = power_of_two_for(vectors, 32, kRowThreads);
      const dim3 grid(static_cast<unsigned>(std::min(in.tokens, kMaxGridX)),
                      static_cast<unsigned>(std::min(divide_up(vectors, 4 * threads), kMaxGridY)));
      const auto run = is_plain(args.options) ? cross_entropy_backward_kernel<T, w, true>
                                              : cross_entropy_backward_kernel<T, w, false>;
      run<<<grid, static_cast<unsigned>(threads), 0, stream_of(ctx)>>>(
          in, args.dloss.as<float>(), args.dloss.sizes[0] != 1, args.lse.as<float>(), rows_of<const T>(args.logits),
          rows_of<T>(args.dlogits));
    };
    if (in.vocab % kLanes<T> == 0 && rows_aligned(args.logits, args.dlogits)) {
      launch(std::integral_constant<int, kLanes<T>>());
    } else {
      launch(std::integral_constant<int, 1>());
    }
  });
  check_launch("cross_entropy_backward");
}

}  // namespace tigon::cuda
