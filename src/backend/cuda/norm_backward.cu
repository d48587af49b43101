// Backward of the norms on a persistent grid: each block walks over rows with its share of dweight (and dbias) in f32
// registers, while the next rows arrive in shared memory. Each thread reads back only what it copied itself, so that
// the sums over a row are the only barriers. At the end each block writes its share, and a second kernel adds up the
// shares in order.
#include <cuda_pipeline.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/reduce.cuh"
#include "backend/cuda/row.cuh"

namespace tigon::cuda {

namespace {

enum class Norm { rms, add_rms, layer };

template <class T>
struct Arguments {
  Rows<T> x, dy, dresidual, dx;
  Parameter weight;
  const float* mean;
  const float* rstd;
  float* dweight;  // [blocks, hidden], or null
  float* dbias;
  int64_t tokens, hidden;
  bool round_early;
};

// What backward needs of one element besides dy.
template <class T, Norm kNorm>
__device__ inline float normal_of(const Arguments<T>& args, float x, float mean, float rstd) {
  if constexpr (kNorm == Norm::layer) return (x - mean) * rstd;
  const float normal = x * rstd;
  return args.round_early ? rounded<T>(normal) : normal;
}

// The terms of the two sums over a row: mean(m) and mean(m·xhat) of layernorm, m·x of rmsnorm.
template <Norm kNorm>
__device__ inline void add_terms(TwoSums& sums, float m, float x, float normal) {
  if constexpr (kNorm == Norm::layer) {
    sums.a += m;
    sums.b += m * normal;
  } else {
    sums.b += m * x;
  }
}

// dx of one element from the sums over its row, each already divided by the row's length.
template <Norm kNorm>
__device__ inline float gradient(float m, float x, float mean, float rstd, TwoSums means) {
  if constexpr (kNorm == Norm::layer) return rstd * (m - means.a - (x - mean) * rstd * means.b);
  return m * rstd - rstd * rstd * rstd * means.b * x;
}

constexpr int kPacks = 2;  // per thread

template <class T, Norm kNorm, int kMaxThreads, int kStages>
__global__ void __launch_bounds__(kMaxThreads) backward_kernel(const Arguments<T> args) {
  constexpr int kTensors = kNorm == Norm::add_rms ? 3 : 2;
  extern __shared__ uint4 ring[];  // [stages, tensors, packs, threads]
  __shared__ BlockReduce<TwoSums>::Storage storage;
  BlockReduce<TwoSums> block(storage);
  const int64_t step = gridDim.x;
  const auto hidden = static_cast<unsigned>(args.hidden);  // launch() sends only short rows here
  const auto column = [&](int p) { return (threadIdx.x + p * blockDim.x) * kPack<T>; };
  const auto slot = [&](int stage, int tensor, int p) {
    return reinterpret_cast<Pack<T>*>(ring + ((stage * kTensors + tensor) * kPacks + p) * blockDim.x + threadIdx.x);
  };
  // Asks for a row; counts as one group also when there is no such row.
  const auto fetch = [&](int64_t i, int stage) {
    if (i < args.tokens) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) >= hidden) continue;
        __pipeline_memcpy_async(slot(stage, 0, p), args.x.row(i) + column(p), 16);
        __pipeline_memcpy_async(slot(stage, 1, p), args.dy.row(i) + column(p), 16);
        if constexpr (kNorm == Norm::add_rms)
          __pipeline_memcpy_async(slot(stage, 2, p), args.dresidual.row(i) + column(p), 16);
      }
    }
    __pipeline_commit();
  };

  float dweight[kPacks][kPack<T>] = {};
  float dbias[kPacks][kPack<T>] = {};
  int64_t i = blockIdx.x;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) fetch(i + s * step, s);
  float next_rstd = i < args.tokens ? args.rstd[i] : 0.0f;
  float next_mean = kNorm == Norm::layer && i < args.tokens ? args.mean[i] : 0.0f;
  for (int stage = 0; i < args.tokens; i += step) {
    fetch(i + (kStages - 1) * step, stage == 0 ? kStages - 1 : stage - 1);
    const float rstd = next_rstd, mean = next_mean;
    if (i + step < args.tokens) {
      next_rstd = args.rstd[i + step];
      if constexpr (kNorm == Norm::layer) next_mean = args.mean[i + step];
    }
    __pipeline_wait_prior(kStages - 1);

    Pack<T> x[kPacks], dy[kPacks];
    TwoSums sums{0.0f, 0.0f};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= hidden) continue;
      x[p] = *slot(stage, 0, p);
      dy[p] = *slot(stage, 1, p);
      float weight[kPack<T>];
      read_parameter<T>(args.weight, column(p), weight);
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) {
        const float normal = normal_of<T, kNorm>(args, x[p][e], mean, rstd);
        add_terms<kNorm>(sums, dy[p][e] * weight[e], x[p][e], normal);
        dweight[p][e] += dy[p][e] * normal;
        if constexpr (kNorm == Norm::layer) dbias[p][e] += dy[p][e];
      }
    }
    if (args.dx.data != nullptr) {
      TwoSums means = block.sum(sums);
      means.a /= static_cast<float>(hidden);
      means.b /= static_cast<float>(hidden);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) >= hidden) continue;
        keep_packed(x[p]);
        keep_packed(dy[p]);
        float weight[kPack<T>];
        read_parameter<T>(args.weight, column(p), weight);
        Pack<T> above;
        if constexpr (kNorm == Norm::add_rms) above = *slot(stage, 2, p);
        float dx[kPack<T>];
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          dx[e] = gradient<kNorm>(dy[p][e] * weight[e], x[p][e], mean, rstd, means);
          if constexpr (kNorm == Norm::add_rms) dx[e] += above[e];
        }
        x[p].set(dx);
        store_pack(args.dx.row(i) + column(p), x[p]);
      }
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }

  const auto write_share = [&](float* shares, const float(&share)[kPacks][kPack<T>]) {
    if (shares == nullptr) return;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= hidden) continue;
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) shares[blockIdx.x * args.hidden + column(p) + e] = share[p][e];
    }
  };
  write_share(args.dweight, dweight);
  if constexpr (kNorm == Norm::layer) write_share(args.dbias, dbias);
}

// Any alignment and any length. First the shares of dweight, a thread per column: dx may be written over what they
// read.
template <class T, Norm kNorm>
__global__ void shares_any_kernel(const Arguments<T> args) {
  const int64_t hidden = args.hidden;
  for (int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; j < hidden;
       j += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    float dweight = 0.0f, dbias = 0.0f;
    for (int64_t i = blockIdx.y; i < args.tokens; i += gridDim.y) {
      const float mean = kNorm == Norm::layer ? args.mean[i] : 0.0f;
      const float dy = widen(args.dy.row(i)[j]);
      dweight += dy * normal_of<T, kNorm>(args, widen(args.x.row(i)[j]), mean, args.rstd[i]);
      dbias += dy;
    }
    if (args.dweight != nullptr) args.dweight[blockIdx.y * hidden + j] = dweight;
    if (args.dbias != nullptr) args.dbias[blockIdx.y * hidden + j] = dbias;
  }
}

template <class T, Norm kNorm>
__global__ void backward_any_kernel(const Arguments<T> args) {
  __shared__ BlockReduce<TwoSums>::Storage storage;
  BlockReduce<TwoSums> block(storage);
  const int64_t hidden = args.hidden;
  for (int64_t i = blockIdx.x; i < args.tokens; i += gridDim.x) {
    const T *x = args.x.row(i), *dy = args.dy.row(i);
    const T* above = kNorm == Norm::add_rms ? args.dresidual.row(i) : nullptr;
    T* dx = args.dx.row(i);
    const float rstd = args.rstd[i], mean = kNorm == Norm::layer ? args.mean[i] : 0.0f;
    TwoSums sums{0.0f, 0.0f};
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      const float m = widen(dy[j]) * read_parameter_at<T>(args.weight, j);
      add_terms<kNorm>(sums, m, widen(x[j]), (widen(x[j]) - mean) * rstd);
    }
    TwoSums means = block.sum(sums);
    means.a /= static_cast<float>(hidden);
    means.b /= static_cast<float>(hidden);
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      const float m = widen(dy[j]) * read_parameter_at<T>(args.weight, j);
      float value = gradient<kNorm>(m, widen(x[j]), mean, rstd, means);
      if constexpr (kNorm == Norm::add_rms) value += widen(above[j]);
      dx[j] = narrow<T>(value);
    }
  }
}

// out[j] = (accumulate ? out[j] : 0) + Σ shares[b, j]: 32 columns per block, each warp every 16th share, then the warps
// in order.
constexpr int kShareWarps = 16;
__global__ void __launch_bounds__(kShareWarps* kWarp)
    add_shares_kernel(const float* shares, int64_t blocks, int64_t hidden, void* out, DType dtype, bool accumulate) {
  __shared__ float parts[kShareWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0.0f;
  if (j < hidden) {
#pragma unroll 8
    for (int64_t b = warp; b < blocks; b += kShareWarps) sum += shares[b * hidden + j];
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || j >= hidden) return;
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kShareWarps; ++w) total += parts[w][lane];
  if (accumulate) total += read_element(out, dtype, j);
  write_element(out, dtype, j, total);
}

// How the rows are shared out: by the shape and the device alone, whatever the alignment.
struct Grid {
  int64_t blocks;
  int64_t threads;
};

Grid backward_grid(Device device, int64_t tokens, int64_t hidden, DType dtype) {
  const int64_t packs = divide_up(hidden * size_of(dtype), 16);
  const int64_t threads = std::min<int64_t>(1024, round_up(divide_up(packs, kPacks), kWarp));
  const int64_t per_multiprocessor = std::clamp<int64_t>(512 / threads, 1, 16);
  return {std::min(tokens, multiprocessors(device) * per_multiprocessor), threads};
}

template <class T, Norm kNorm, int kMaxThreads, int kStages>
bool launch_packed(const Arguments<T>& args, const Grid& grid, Device device, cudaStream_t stream) {
  constexpr int kTensors = kNorm == Norm::add_rms ? 3 : 2;
  const auto shared = static_cast<int>(grid.threads) * kPacks * kTensors * kStages * 16;
  const auto kernel = backward_kernel<T, kNorm, kMaxThreads, kStages>;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "norm_backward");
  if (shared + static_cast<int>(attributes.sharedSizeBytes) > shared_bytes_limit(device)) return false;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "norm_backward");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        "norm_backward");
  kernel<<<grid_size(grid.blocks), static_cast<unsigned>(grid.threads), static_cast<size_t>(shared), stream>>>(args);
  return true;
}

template <class T, Norm kNorm>
void launch(const Arguments<T>& args, const Grid& grid, bool packed, Device device, cudaStream_t stream) {
  const int64_t packs = divide_up(args.hidden, kPack<T>);
  if (packed && packs <= grid.threads * kPacks) {
    if (grid.threads <= 512 ? launch_packed<T, kNorm, 512, 3>(args, grid, device, stream)
                            : launch_packed<T, kNorm, 1024, 2>(args, grid, device, stream))
      return;
  }
  if (args.dweight != nullptr || args.dbias != nullptr) {
    const dim3 tiles(grid_size(std::min<int64_t>(divide_up(args.hidden, 128), 1 << 16)),
                     static_cast<unsigned>(grid.blocks));
    shares_any_kernel<T, kNorm><<<tiles, 128, 0, stream>>>(args);
  }
  if (args.dx.data != nullptr) backward_any_kernel<T, kNorm><<<grid_size(args.tokens), 256, 0, stream>>>(args);
}

}  // namespace

void norm_backward(const Context& ctx, const NormBackward& args) {
  check_storage({args.x});
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const DeviceGuard guard(ctx.device);
  const Grid grid = backward_grid(ctx.device, tokens, std::max<int64_t>(1, hidden), args.x.dtype);
  const Buffer dweight = ctx.scratch("norm_dweight", args.dweight ? grid.blocks * hidden * 4 : 0);
  const Buffer dbias = ctx.scratch("norm_dbias", args.dbias ? grid.blocks * hidden * 4 : 0);
  if (ctx.measuring() || hidden == 0) return;
  const bool packed =
      packable(args.x) && packable(args.dy) && packable(args.dresidual) && packable(args.dx) && packable(args.weight);
  if (tokens > 0) {
    with_type(args.x.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const Arguments<T> kernel_args{.x = Rows<T>(args.x),
                                     .dy = Rows<T>(args.dy),
                                     .dresidual = Rows<T>(args.dresidual),
                                     .dx = Rows<T>(args.dx),
                                     .weight = parameter(args.weight, args.offset, 1.0),
                                     .mean = args.mean ? args.mean.as<float>() : nullptr,
                                     .rstd = args.rstd.as<float>(),
                                     .dweight = dweight.as<float>(),
                                     .dbias = dbias.as<float>(),
                                     .tokens = tokens,
                                     .hidden = hidden,
                                     .round_early = args.round_early};
      if (args.layer) {
        launch<T, Norm::layer>(kernel_args, grid, packed, ctx.device, stream_of(ctx));
      } else if (args.dresidual) {
        launch<T, Norm::add_rms>(kernel_args, grid, packed, ctx.device, stream_of(ctx));
      } else {
        launch<T, Norm::rms>(kernel_args, grid, packed, ctx.device, stream_of(ctx));
      }
    });
    check_launch("norm_backward");
  }
  const auto add_shares = [&](const Buffer& shares, const Tensor& out) {
    if (!out) return;
    add_shares_kernel<<<grid_size(divide_up(hidden, kWarp)), kShareWarps * kWarp, 0, stream_of(ctx)>>>(
        shares.as<float>(), grid.blocks, hidden, out.data, out.dtype, args.accumulate);
    check_launch("norm_backward");
  };
  add_shares(dweight, args.dweight);
  add_shares(dbias, args.dbias);
}

}  // namespace tigon::cuda
