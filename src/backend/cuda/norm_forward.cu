// Forward of the norms: each row is read once, kept in registers as stored, and written once. Rows of up to 4 KB belong
// to a warp, longer ones to a block; rows that cannot be read 16 bytes at a time go through a plain kernel that reads
// them again for each pass.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/reduce.cuh"
#include "backend/cuda/row.cuh"

namespace tigon::cuda {

namespace {

enum class Norm { rms, add_rms, layer };

template <class T>
struct Arguments {
  Rows<T> x, residual, residual_out, y;
  Parameter weight, bias;
  float* mean;
  float* rstd;
  int64_t tokens, hidden;
  float eps;
  bool round_early;
};

template <class T, Norm kNorm>
__device__ inline float normalized(const Arguments<T>& args, float x, float mean, float rstd, float weight,
                                   float bias) {
  if constexpr (kNorm == Norm::layer) return (x - mean) * rstd * weight + bias;
  float normal = x * rstd;
  if (args.round_early) normal = rounded<T>(normal);
  return normal * weight;
}

constexpr int kWarpsPerBlock = 4;

// kOneWarp: a row per warp; else a row per block. Each thread holds kPacks packs of the row.
template <class T, Norm kNorm, int kPacks, bool kOneWarp>
__global__ void __launch_bounds__(kOneWarp ? kWarpsPerBlock* kWarp : 1024) forward_kernel(const Arguments<T> args) {
  __shared__ BlockReduce<float>::Storage storage;
  BlockReduce<float> block(storage);
  const auto sum = [&](float value) { return kOneWarp ? warp_sum(value) : block.sum(value); };
  const unsigned lane = kOneWarp ? threadIdx.x % kWarp : threadIdx.x;
  const unsigned lanes = kOneWarp ? kWarp : blockDim.x;
  const int64_t rows_per_block = kOneWarp ? kWarpsPerBlock : 1;
  const auto hidden = static_cast<unsigned>(args.hidden);  // launch() sends only short rows here
  const auto column = [&](int p) { return (lane + p * lanes) * kPack<T>; };

  for (int64_t i = blockIdx.x * rows_per_block + (kOneWarp ? threadIdx.x / kWarp : 0); i < args.tokens;
       i += gridDim.x * rows_per_block) {
    Pack<T> row[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) < hidden) row[p] = load_once(args.x.row(i) + column(p));
    }
    if constexpr (kNorm == Norm::add_rms) {
      Pack<T> residual[kPacks];
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) < hidden) residual[p] = load_once(args.residual.row(i) + column(p));
      }
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) >= hidden) continue;
        float total[kPack<T>];
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) total[e] = row[p][e] + residual[p][e];
        row[p].set(total);
        store_pack(args.residual_out.row(i) + column(p), row[p]);
        keep_packed(row[p]);
      }
    }

    float mean = 0.0f;
    if constexpr (kNorm == Norm::layer) {
      float total = 0.0f;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) >= hidden) continue;
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) total += row[p][e];
      }
      mean = sum(total) / static_cast<float>(hidden);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) keep_packed(row[p]);
    }
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= hidden) continue;
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) {
        const float v = row[p][e] - mean;
        squares += v * v;
      }
    }
    const float rstd = 1.0f / sqrtf(sum(squares) / static_cast<float>(hidden) + args.eps);
    if (lane == 0) {
      if (args.mean != nullptr) args.mean[i] = mean;
      if (args.rstd != nullptr) args.rstd[i] = rstd;
    }

#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= hidden) continue;
      keep_packed(row[p]);
      float weight[kPack<T>], bias[kPack<T>] = {};
      read_parameter<T>(args.weight, column(p), weight);
      if constexpr (kNorm == Norm::layer) read_parameter<T>(args.bias, column(p), bias);
      float y[kPack<T>];
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) y[e] = normalized<T, kNorm>(args, row[p][e], mean, rstd, weight[e], bias[e]);
      row[p].set(y);
      store_pack(args.y.row(i) + column(p), row[p]);
    }
  }
}

// Any alignment and any length: a block per row, element by element, the row read again for each pass. In the last pass
// each element is read before the same thread writes it, so that outputs may be inputs.
template <class T, Norm kNorm>
__global__ void forward_any_kernel(const Arguments<T> args) {
  __shared__ BlockReduce<float>::Storage storage;
  BlockReduce<float> block(storage);
  const int64_t hidden = args.hidden;
  for (int64_t i = blockIdx.x; i < args.tokens; i += gridDim.x) {
    const T* x = args.x.row(i);
    const T* r = kNorm == Norm::add_rms ? args.residual.row(i) : nullptr;
    T* out = kNorm == Norm::add_rms ? args.residual_out.row(i) : nullptr;
    T* y = args.y.row(i);
    const auto value = [&](int64_t j) {
      if constexpr (kNorm == Norm::add_rms) return rounded<T>(widen(x[j]) + widen(r[j]));
      return widen(x[j]);
    };
    float mean = 0.0f;
    if constexpr (kNorm == Norm::layer) {
      float total = 0.0f;
      for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) total += value(j);
      mean = block.sum(total) / static_cast<float>(hidden);
    }
    float squares = 0.0f;
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      const float v = value(j) - mean;
      squares += v * v;
    }
    const float rstd = 1.0f / sqrtf(block.sum(squares) / static_cast<float>(hidden) + args.eps);
    if (threadIdx.x == 0) {
      if (args.mean != nullptr) args.mean[i] = mean;
      if (args.rstd != nullptr) args.rstd[i] = rstd;
    }
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      const float v = value(j);
      if constexpr (kNorm == Norm::add_rms) out[j] = narrow<T>(v);
      const float bias = kNorm == Norm::layer ? read_parameter_at<T>(args.bias, j) : 0.0f;
      y[j] = narrow<T>(normalized<T, kNorm>(args, v, mean, rstd, read_parameter_at<T>(args.weight, j), bias));
    }
  }
}

template <class T, Norm kNorm>
void launch(const Arguments<T>& args, bool packed, cudaStream_t stream) {
  const int64_t packs = divide_up(args.hidden, kPack<T>);
  constexpr int kBlockPacks = 4;
  const auto by_warp = [&](auto kernel) {
    kernel<<<grid_size(divide_up(args.tokens, kWarpsPerBlock)), kWarpsPerBlock * kWarp, 0, stream>>>(args);
  };
  if (!packed || packs > 1024 * kBlockPacks) {
    forward_any_kernel<T, kNorm><<<grid_size(args.tokens), 256, 0, stream>>>(args);
  } else if (packs <= kWarp) {
    by_warp(forward_kernel<T, kNorm, 1, true>);
  } else if (packs <= 2 * kWarp) {
    by_warp(forward_kernel<T, kNorm, 2, true>);
  } else if (packs <= 4 * kWarp) {
    by_warp(forward_kernel<T, kNorm, 4, true>);
  } else if (packs <= 8 * kWarp) {
    by_warp(forward_kernel<T, kNorm, 8, true>);
  } else {
    const int64_t threads = round_up(divide_up(packs, kBlockPacks), kWarp);
    forward_kernel<T, kNorm, kBlockPacks, false>
        <<<grid_size(args.tokens), static_cast<unsigned>(threads), 0, stream>>>(args);
  }
}

}  // namespace

void norm_forward(const Context& ctx, const NormForward& args) {
  check_storage({args.x});
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  if (ctx.measuring() || tokens == 0 || hidden == 0) return;
  const DeviceGuard guard(ctx.device);
  const bool packed = packable(args.x) && packable(args.residual) && packable(args.residual_out) && packable(args.y) &&
                      packable(args.weight) && packable(args.bias);
  with_type(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Arguments<T> kernel_args{.x = Rows<T>(args.x),
                                   .residual = Rows<T>(args.residual),
                                   .residual_out = Rows<T>(args.residual_out),
                                   .y = Rows<T>(args.y),
                                   .weight = parameter(args.weight, args.offset, 1.0),
                                   .bias = parameter(args.bias, 0.0, 0.0),
                                   .mean = args.mean ? args.mean.as<float>() : nullptr,
                                   .rstd = args.rstd ? args.rstd.as<float>() : nullptr,
                                   .tokens = tokens,
                                   .hidden = hidden,
                                   .eps = static_cast<float>(args.eps),
                                   .round_early = args.round_early};
    if (args.layer) {
      launch<T, Norm::layer>(kernel_args, packed, stream_of(ctx));
    } else if (args.residual) {
      launch<T, Norm::add_rms>(kernel_args, packed, stream_of(ctx));
    } else {
      launch<T, Norm::rms>(kernel_args, packed, stream_of(ctx));
    }
  });
  check_launch("norm_forward");
}

}  // namespace tigon::cuda
