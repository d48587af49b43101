// Which forward kernel a norm takes. Rows of tensors that begin at different places of 16 bytes, and very long ones, go
// through a plain kernel that reads them again for each pass.
#include "backend/cuda/norm_forward.cuh"

#include "backend/cuda/norm.cuh"
#include "backend/cuda/row_launch.cuh"

namespace tigon::cuda {

namespace {

// The choices that were measured. Bytes in flight are threads per multiprocessor times packs times 16.
constexpr int kPacksPerThread = 4;
constexpr int kBlockThreads = 128;  // of blocks that take several short rows, a warp each
constexpr int kMaxThreads = 512;
constexpr int kMinBlocks = 2;  // of kMaxThreads that must fit on a multiprocessor: caps the registers
constexpr auto kOwnReading = Reading::early;

// Any alignment and any length: a block per row, element by element, the row read again for each pass. In the last pass
// each element is read before the same thread writes it, so that outputs may be inputs.
template <class T, Norm kNorm>
__global__ void forward_any_kernel(const __grid_constant__ NormForwardRows<T> args) {
  __shared__ float shared[kMaxWarps];
  const int64_t hidden = args.hidden;
  for (int64_t i = blockIdx.x; i < args.tokens; i += gridDim.x) {
    const T* x = args.x.at(i);
    const T* r = kNorm == Norm::add_rms ? args.residual.at(i) : nullptr;
    T* out = kNorm == Norm::add_rms ? args.residual_out.at(i) : nullptr;
    T* y = args.y.at(i);
    const auto value = [&](int64_t j) {
      if constexpr (kNorm == Norm::add_rms) return rounded<T>(load_one(x + j) + load_one(r + j));
      return load_one(x + j);
    };
    float mean = 0.0f;
    if constexpr (kNorm == Norm::layer) {
      float total = 0.0f;
      for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) total += value(j);
      mean = block_reduce(total, 0.0f, Sum(), shared) / static_cast<float>(hidden);
    }
    float squares = 0.0f;
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      const float v = value(j) - mean;
      squares += v * v;
    }
    const float rstd = rsqrtf(block_reduce(squares, 0.0f, Sum(), shared) / static_cast<float>(hidden) + args.eps);
    if (threadIdx.x == 0) {
      if (args.mean != nullptr) args.mean[i] = mean;
      if (args.rstd != nullptr) args.rstd[i] = rstd;
    }
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      const float v = value(j), weight = read_parameter<T>(args.weight, j);
      if constexpr (kNorm == Norm::add_rms) store_one(out + j, v);
      float normal = normal_of<kNorm>(v, mean, rstd);
      if (kNorm != Norm::layer && args.round_early) normal = rounded<T>(normal);
      store_one(y + j, kNorm == Norm::layer ? fmaf(normal, weight, read_parameter<T>(args.bias, j)) : normal * weight);
    }
  }
}

template <class T, Norm kNorm>
void launch(const Context& ctx, NormForwardRows<T> args, Reach reach, bool own_parameters) {
  const bool shifted = reach == Reach::shifted;
  const int64_t packs = shifted ? most_vectors(args.hidden, kLanes<T>) : args.hidden / kLanes<T>;
  if (reach == Reach::elements || packs > 1024 * kPacksPerThread) {
    forward_any_kernel<T, kNorm><<<grid_size(args.tokens), 256, 0, stream_of(ctx)>>>(args);
    return;
  }
  const auto run = [&](auto kernel, int packs_per_thread) {
    const int64_t threads = round_up(divide_up(packs, packs_per_thread), kWarp);
    const int64_t groups = threads == kWarp ? kBlockThreads / kWarp : 1;
    args.group_threads = static_cast<unsigned>(threads);
    launch_early(ctx.device, true, stream_of(ctx), grid_size(divide_up(args.tokens, groups)),
                 static_cast<unsigned>(groups * threads), 0, kernel, args);
  };
  // rmsnorm and add_rmsnorm share out a row in the same way, so that a row's sum has the same bits in both: a trainer
  // that kept x = a + b runs the one where it had run the other. Two tensors arrive at once in add_rmsnorm, whose
  // registers would not hold the weight besides.
  constexpr auto kReading = kNorm == Norm::add_rms ? Reading::late : kOwnReading;
  if (shifted) {
    if (packs <= kWarp) {
      run(norm_forward_kernel<T, kNorm, 1, kMaxThreads, kMinBlocks, Reading::shifted>, 1);
    } else if (packs <= kMaxThreads * kPacksPerThread) {
      run(norm_forward_kernel<T, kNorm, kPacksPerThread, kMaxThreads, kMinBlocks, Reading::shifted>, kPacksPerThread);
    } else {
      run(norm_forward_kernel<T, kNorm, kPacksPerThread, 1024, 1, Reading::shifted>, kPacksPerThread);
    }
  } else if (!own_parameters) {
    run(norm_forward_kernel<T, kNorm, kPacksPerThread, 1024, 1, Reading::any>, kPacksPerThread);
  } else if (packs <= kWarp) {
    run(norm_forward_kernel<T, kNorm, 1, kMaxThreads, kMinBlocks, kOwnReading>, 1);
  } else if (packs <= kMaxThreads * kPacksPerThread) {
    run(norm_forward_kernel<T, kNorm, kPacksPerThread, kMaxThreads, kMinBlocks, kReading>, kPacksPerThread);
  } else {
    run(norm_forward_kernel<T, kNorm, kPacksPerThread, 1024, 1, Reading::late>, kPacksPerThread);
  }
}

}  // namespace

void norm_forward(const Context& ctx, const NormForward& args) {
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  dispatch("norm_forward", args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (ctx.measuring() || tokens == 0 || hidden == 0) return;
    const DeviceGuard guard(ctx);
    Reach reach = reach_of(false, args.x, args.residual, args.residual_out, args.y);
    if (reach == Reach::vectors && !rows_aligned(args.weight, args.bias)) reach = Reach::shifted;
    const auto own = [&](const Tensor& t) { return t && t.dtype == args.x.dtype; };
    const NormForwardRows<T> rows{.x = rows_of<const T>(args.x),
                                  .residual = rows_of<const T>(args.residual),
                                  .residual_out = rows_of<T>(args.residual_out),
                                  .y = rows_of<T>(args.y),
                                  .weight = parameter(args.weight, args.offset, 1.0),
                                  .bias = parameter(args.bias, 0.0, 0.0),
                                  .mean = args.mean ? args.mean.as<float>() : nullptr,
                                  .rstd = args.rstd ? args.rstd.as<float>() : nullptr,
                                  .tokens = tokens,
                                  .hidden = hidden,
                                  .group_threads = 0,
                                  .eps = static_cast<float>(args.eps),
                                  .round_early = args.round_early};
    if (args.layer) {
      launch<T, Norm::layer>(ctx, rows, reach, own(args.weight) && own(args.bias));
    } else if (args.residual) {
      launch<T, Norm::add_rms>(ctx, rows, reach, own(args.weight));
    } else {
      launch<T, Norm::rms>(ctx, rows, reach, own(args.weight));
    }
    check_launch("norm_forward");
  });
}

}  // namespace tigon::cuda
