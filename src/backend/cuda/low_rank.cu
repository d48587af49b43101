// What optimizers of low rank do to matrices of full size: one pass that sums the squares of each channel, one that
// updates. Between them a single block makes the factors: channels are thousands, and their order is fixed.
#include <cmath>

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/fours.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kFactorThreads = 1024;
constexpr int64_t kSlabRows = 512, kMaxSlabs = 64;  // of the rows whose squares are summed by columns

unsigned grid_of(int64_t items, int64_t each) {
  return static_cast<unsigned>(std::min(divide_up(items, each), kMaxGridX));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    normal_kernel(T* y, int64_t n, double deviation, const __grid_constant__ RandomStream random, uint64_t first) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kThreads) {
    const uint64_t element = first + static_cast<uint64_t>(i);
    const uint4 words = philox(element / 4, random);
    const bool second = element % 4 >= 2;
    const double u = (static_cast<double>(second ? words.z : words.x) + 1.0) * 0x1p-32;
    double sine, cosine;
    sincospi(static_cast<double>(second ? words.w : words.y) * 0x1p-31, &sine, &cosine);
    const double radius = deviation * sqrt(-2.0 * log(u));
    store_one(y + i, static_cast<float>(radius * (element % 2 == 0 ? cosine : sine)));
  }
}

// A warp for each row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    row_squares_kernel(const T* x, int64_t rows, int64_t columns, double* sums) {
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; row < rows; row += int64_t{gridDim.x} * kWarps) {
    const T* p = x + row * columns;
    double sum = 0;
#pragma unroll 4
    for (int64_t j = threadIdx.x % 32; j < columns; j += 32) {
      const auto v = static_cast<double>(load_one(p + j));
      sum = fma(v, v, sum);
    }
    sum = warp_reduce(sum, Sum());
    if (threadIdx.x % 32 == 0) sums[row] = sum;
  }
}

// A warp across 32 columns, and eight of them share the rows of a slab: sums [slabs, columns].
template <class T>
__global__ void __launch_bounds__(kThreads)
    column_squares_kernel(const T* x, int64_t rows, int64_t columns, int64_t slab, double* sums) {
  __shared__ double parts[kWarps][32];
  const int64_t j = int64_t{blockIdx.x} * 32 + threadIdx.x;
  const int64_t end = min(rows, (blockIdx.y + 1) * slab);
  double sum = 0;
  if (j < columns) {
#pragma unroll 4
    for (int64_t i = blockIdx.y * slab + threadIdx.y; i < end; i += kWarps) {
      const auto v = static_cast<double>(load_one(x + i * columns + j));
      sum = fma(v, v, sum);
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || j >= columns) return;
  for (int w = 1; w < kWarps; ++w) sum += parts[w][threadIdx.x];
  sums[blockIdx.y * columns + j] = sum;
}

struct FactorsJob {
  double *direction, *projected;  // [channels]
  const double* grad;             // [slabs, channels]
  int64_t channels, slabs;
  const float* grad_scale;  // may be null
  float *last, *factors;
  double gain, growth;
  bool whole;
};

__global__ void __launch_bounds__(kFactorThreads) factors_kernel(const __grid_constant__ FactorsJob job) {
  __shared__ double shared[32];
  const auto sum_of = [&](const double* values) {
    double sum = 0;
    for (int64_t j = threadIdx.x; j < job.channels; j += kFactorThreads) sum += values[j];
    return block_reduce(sum, 0.0, Sum(), shared);
  };
  const double scale = job.grad_scale != nullptr ? static_cast<double>(*job.grad_scale) : 1.0;
  const auto factor = [&](double direction, double projected) {
    return sqrt(direction) / (scale * sqrt(projected) + 1e-8) * scale;
  };
  double of_whole = 0;
  if (job.whole) {
    const double direction = sum_of(job.direction);
    of_whole = factor(direction, sum_of(job.projected));
  }
  double all = 0;
  for (int64_t j = threadIdx.x; j < job.channels; j += kFactorThreads) {
    double grad = 0;
    for (int64_t slab = 0; slab < job.slabs; ++slab) grad += job.grad[slab * job.channels + j];
    const double mine = job.whole ? of_whole : factor(job.direction[j], job.projected[j]);
    job.direction[j] = mine;
    all = fma(mine * mine, grad, all);
  }
  const double last = static_cast<double>(*job.last);
  const double length = sqrt(block_reduce(all, 0.0, Sum(), shared));
  const double growth = length / ((last + 1e-8) * job.growth);
  const double limit = last != 0 && growth > 1 ? growth : 1.0;
  for (int64_t j = threadIdx.x; j < job.channels; j += kFactorThreads)
    job.factors[j] = static_cast<float>(job.gain * job.direction[j] / limit);
  if (threadIdx.x == 0) *job.last = static_cast<float>(length / limit);
}

// A row as one of length one, or where too little of its squares is left another.
__global__ void __launch_bounds__(kThreads)
    normalize_row_kernel(float* rows, int64_t row, int64_t n, const double* squares_before) {
  __shared__ double shared[32];
  float* const p = rows + row * n;
  const auto squares = [&] {
    double sum = 0;
    for (int64_t j = threadIdx.x; j < n; j += kThreads) {
      const auto v = static_cast<double>(p[j]);
      sum = fma(v, v, sum);
    }
    return block_reduce(sum, 0.0, Sum(), shared);
  };
  double sum = squares();
  if (sum <= ops::kLostRow * ops::kLostRow * squares_before[row]) {
    const RandomStream random{};
    for (int64_t j = threadIdx.x; j < n; j += kThreads) {
      const auto element = static_cast<uint64_t>(row * n + j);
      const uint4 words = philox(element / 4, random);
      const uint32_t word[4] = {words.x, words.y, words.z, words.w};
      p[j] = static_cast<float>(word[element % 4] >> 8) * 0x1p-24f - 0.5f;
    }
    sum = squares();
  }
  const auto length = static_cast<float>(sqrt(sum));
  for (int64_t j = threadIdx.x; j < n; j += kThreads) p[j] = __fdiv_rn(p[j], length);
}

// Takes a row of length one out of those behind it: a block for each.
__global__ void __launch_bounds__(kThreads) take_out_kernel(float* rows, int64_t row, int64_t n) {
  __shared__ double shared[32];
  const float* const q = rows + row * n;
  float* const p = rows + (row + 1 + blockIdx.x) * n;
  double sum = 0;
  for (int64_t j = threadIdx.x; j < n; j += kThreads)
    sum = fma(static_cast<double>(p[j]), static_cast<double>(q[j]), sum);
  const auto dot = static_cast<float>(block_reduce(sum, 0.0, Sum(), shared));
  for (int64_t j = threadIdx.x; j < n; j += kThreads) p[j] = __fmaf_rn(-dot, q[j], p[j]);
}

struct ScaledJob {
  Array param, grad, param_copy;
  const float* factors;  // may be null
  bool columnwise;
  int64_t n, columns;
  float lr, decay;
  bool stochastic;
  RandomStream random;
  uint64_t first_element;
};

template <bool kAligned>
__global__ void __launch_bounds__(kThreads) scaled_update_kernel(const __grid_constant__ ScaledJob job) {
  for (int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEach; first < job.n;
       first += int64_t{gridDim.x} * kThreads * kEach) {
    float param[kEach], grad[kEach];
    widen(job.param.dtype, fetch<kAligned>(job.param, first, job.n), param);
    widen(job.grad.dtype, fetch<kAligned>(job.grad, first, job.n), grad);
    int64_t row = first / job.columns, column = first - row * job.columns;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool there = job.factors != nullptr && first + i < job.n;
      const float step = __fmul_rn(job.lr, there ? job.factors[job.columnwise ? column : row] : 1.0f);
      param[i] = __fmaf_rn(-step, grad[i], param[i]);
      param[i] = __fmaf_rn(-job.decay, param[i], param[i]);
      if (++column == job.columns) column = 0, ++row;
    }
    if (job.stochastic) {
      uint32_t words[kEach];
      random_words(job.first_element + static_cast<uint64_t>(first), job.random, words);
#pragma unroll
      for (int i = 0; i < kEach; ++i) param[i] = stochastic(job.param.dtype, param[i], words[i] & 0xffffu);
    }
    put_param<kAligned>(job.param, job.param_copy, first, job.n, param);
  }
}

void row_squares(const Context& ctx, const Tensor& x, double* sums) {
  dispatch("apollo_factors", x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    row_squares_kernel<T>
        <<<grid_of(x.sizes[0], kWarps), kThreads, 0, stream_of(ctx)>>>(x.as<T>(), x.sizes[0], x.sizes[1], sums);
    check_launch("apollo_factors");
  });
}

}  // namespace

void normal(const Context& ctx, const ops::Normal& args) {
  const int64_t n = args.y.elements();
  if (ctx.measuring() || n == 0) return;
  const RandomStream random{.seed = args.seed, .step = args.step, .tensor = args.tensor_id};
  const DeviceGuard guard(ctx);
  dispatch("normal", args.y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    normal_kernel<T><<<grid_of(n, kThreads), kThreads, 0, stream_of(ctx)>>>(args.y.as<T>(), n, args.deviation, random,
                                                                            static_cast<uint64_t>(args.first_element));
    check_launch("normal");
  });
}

void apollo_factors(const Context& ctx, const ops::ApolloFactors& args) {
  const int64_t channels = args.factors.sizes[0], rows = args.grad.sizes[0];
  const int64_t slabs = args.columns ? std::clamp<int64_t>(divide_up(rows, kSlabRows), 1, kMaxSlabs) : 1;
  const Buffer scratch = ctx.scratch("apollo_squares", (2 + slabs) * channels * size_of(DType::f64));
  if (ctx.measuring() || channels == 0) return;
  const DeviceGuard guard(ctx);
  double *const direction = scratch.as<double>(), *const projected = direction + channels,
                *const grad = projected + channels;
  row_squares(ctx, args.direction, direction);
  row_squares(ctx, args.projected, projected);
  if (!args.columns) {
    row_squares(ctx, args.grad, grad);
  } else {
    dispatch("apollo_factors", args.grad.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const dim3 grid(grid_of(channels, 32), static_cast<unsigned>(slabs));
      column_squares_kernel<T><<<grid, dim3(32, kWarps), 0, stream_of(ctx)>>>(args.grad.as<T>(), rows, channels,
                                                                              divide_up(rows, slabs), grad);
      check_launch("apollo_factors");
    });
  }
  const FactorsJob job{.direction = direction,
                       .projected = projected,
                       .grad = grad,
                       .channels = channels,
                       .slabs = slabs,
                       .grad_scale = args.grad_scale ? args.grad_scale.as<float>() : nullptr,
                       .last = args.last.as<float>(),
                       .factors = args.factors.as<float>(),
                       .gain = args.gain,
                       .growth = args.growth,
                       .whole = args.whole};
  factors_kernel<<<1, kFactorThreads, 0, stream_of(ctx)>>>(job);
  check_launch("apollo_factors");
}

void orthonormalize(const Context& ctx, const ops::Orthonormalize& args) {
  const int64_t rank = args.rows.sizes[0], n = args.rows.sizes[1];
  const Buffer before = ctx.scratch("squares of rows", rank * size_of(DType::f64));
  if (ctx.measuring()) return;
  const DeviceGuard guard(ctx);
  for (int64_t i = 0; i < ops::kOrthonormalPasses * rank; ++i) {
    const int64_t row = i % rank, behind = rank - row - 1;
    if (row == 0) row_squares(ctx, args.rows, before.as<double>());
    normalize_row_kernel<<<1, kThreads, 0, stream_of(ctx)>>>(args.rows.as<float>(), row, n, before.as<double>());
    if (behind == 0) continue;
    take_out_kernel<<<static_cast<unsigned>(behind), kThreads, 0, stream_of(ctx)>>>(args.rows.as<float>(), row, n);
  }
  check_launch("orthonormalize");
}

void scaled_update(const Context& ctx, const ops::ScaledUpdate& args) {
  if (ctx.measuring()) return;
  const ScaledJob job{.param = array_of("scaled_update", args.param),
                      .grad = array_of("scaled_update", args.grad),
                      .param_copy = array_of("scaled_update", args.param_copy),
                      .factors = args.factors ? args.factors.as<float>() : nullptr,
                      .columnwise = args.columns,
                      .n = args.param.elements(),
                      .columns = args.param.sizes[1],
                      .lr = static_cast<float>(args.lr),
                      .decay = static_cast<float>(args.decay),
                      .stochastic = args.rounding == ops::Rounding::stochastic && args.param.dtype != DType::f32,
                      .random = {.seed = args.seed, .step = static_cast<uint32_t>(args.step), .tensor = args.tensor_id},
                      .first_element = static_cast<uint64_t>(args.first_element)};
  const DeviceGuard guard(ctx);
  const bool aligned = fours_aligned(job.param) && fours_aligned(job.grad) && fours_aligned(job.param_copy);
  const auto run = aligned ? scaled_update_kernel<true> : scaled_update_kernel<false>;
  run<<<grid_of(job.n, int64_t{kThreads} * kEach), kThreads, 0, stream_of(ctx)>>>(job);
  check_launch("scaled_update");
}

}  // namespace tigon::cuda
