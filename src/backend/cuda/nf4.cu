// nf4: to codes by a warp for each block of 64 elements, then the mean of the scales in two sums of fixed order, then
// the scales' own codes by a warp for each group of 256 (codes.cuh). Back: eight elements of a thread, whose codes are
// one word. The 16 levels are in shared memory, each in a bank of its own.
#include "backend/cuda/codes.cuh"
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/vec.cuh"
#include "backend/nf4_levels.hpp"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kBlock = static_cast<int>(ops::kNf4Block), kGroup = static_cast<int>(ops::kNf4Group);
static_assert(kGroup == kCodeBlock && kBlock == 2 * 32 && kGroup == kThreads);

__device__ const Nf4Levels kDeviceNf4{};

template <class T>
__global__ void __launch_bounds__(kThreads)
    nf4_codes_kernel(const T* x, int64_t n, uint8_t* codes, float* scales, int64_t blocks) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t block = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; block < blocks;
       block += int64_t{gridDim.x} * kWarps) {
    const int64_t first = block * kBlock + 2 * lane;
    const float a = first < n ? load_one(x + first) : 0.0f, b = first + 1 < n ? load_one(x + first + 1) : 0.0f;
    uint32_t bits = max(__float_as_uint(fabsf(a)), __float_as_uint(fabsf(b)));
    for (int step = 16; step > 0; step /= 2) bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, step));
    const float scale = __uint_as_float(bits), least = scale < kNf4Smallest ? kNf4Smallest : scale;
    const bool whole = (block + 1) * kBlock <= n;  // at the end a quotient, and no smaller scale, as bitsandbytes
    const float by = __fdiv_rn(1.0f, least);
    const auto code = [&](float value) {
      const float scaled = whole ? __fmul_rn(value, by) : __fdiv_rn(value, least);
      uint32_t above = 0;
#pragma unroll
      for (int i = 0; i < 15; ++i) above += scaled <= kDeviceNf4.middles[i] ? 0 : 1;
      return above;
    };
    if (first < n) codes[first / 2] = static_cast<uint8_t>(code(a) << 4 | code(b));
    if (lane == 0) scales[block] = whole ? scale : least;
  }
}

// The sum of a thread block's values, in a fixed order; thread 0 has it.
__device__ double sum_of_threads(double value, double (&shared)[kThreads]) {
  shared[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

__global__ void __launch_bounds__(kThreads) nf4_sums_kernel(const float* scales, int64_t blocks, double* sums) {
  __shared__ double shared[kThreads];
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const double sum = sum_of_threads(at < blocks ? static_cast<double>(scales[at]) : 0.0, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    nf4_mean_kernel(const double* sums, int64_t groups, int64_t blocks, float* offset) {
  __shared__ double shared[kThreads];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < groups; i += kThreads) sum += sums[i];
  sum = sum_of_threads(sum, shared);
  if (threadIdx.x > 0) return;
  const auto mean = static_cast<float>(blocks > 0 ? sum / static_cast<double>(blocks) : 0.0);
  *offset = isfinite(mean) ? mean : __uint_as_float(0x7fc00000u);
}

__global__ void __launch_bounds__(kThreads) nf4_scales_kernel(const float* scales, int64_t blocks, const float* offset,
                                                              uint8_t* codes, float* group_scales, int64_t groups) {
  __shared__ SharedTables tables[2];
  load_tables(tables);
  const float mean = *offset;
  const Array out{.data = codes, .dtype = DType::u8};
  for (int64_t group = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; group < groups;
       group += int64_t{gridDim.x} * kWarps) {
    const int64_t first = group * kGroup + threadIdx.x % 32 * kEach;
    float values[kFours][kEach];
#pragma unroll
    for (int k = 0; k < kFours; ++k) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int64_t at = first + k * 32 * kEach + i;
        values[k][i] = at < blocks && isfinite(mean) ? __fsub_rn(scales[at], mean) : 0.0f;
      }
    }
    put_moment<true, false>(values, tables[0], out, group_scales + group, first, blocks);
    if (threadIdx.x % 32 == 0 && !isfinite(mean)) group_scales[group] = mean;
  }
}

constexpr int kEight = 8;

template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    nf4_back_kernel(const uint8_t* codes, const uint8_t* scale_codes, const float* group_scales, const float* offset,
                    T* y, int64_t n) {
  __shared__ float levels[16];
  if (threadIdx.x < 16) levels[threadIdx.x] = kDeviceNf4.levels[threadIdx.x];
  __syncthreads();
  const float* const map = reinterpret_cast<const SharedTables*>(kDeviceTables)->map;
  const float mean = *offset;
  for (int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEight; first < n;
       first += int64_t{gridDim.x} * kThreads * kEight) {
    const int64_t block = first / kBlock;
    const float scale = __fadd_rn(__fmul_rn(map[scale_codes[block]], group_scales[block / kGroup]), mean);
    const bool whole = kAligned && first + kEight <= n;
    uint32_t word = 0;
    if (whole) {
      word = *reinterpret_cast<const uint32_t*>(codes + first / 2);
    } else {
      for (int i = 0; i < kEight / 2 && first + 2 * i < n; ++i)
        word |= static_cast<uint32_t>(codes[first / 2 + i]) << 8 * i;
    }
    float v[kEight];
#pragma unroll
    for (int i = 0; i < kEight; ++i)
      v[i] = __fmul_rn(levels[word >> (8 * (i / 2) + (i % 2 == 0 ? 4 : 0)) & 15u], scale);
    if (whole) {
      constexpr int W = kLanes<T>;
#pragma unroll
      for (int i = 0; i < kEight; i += W) store<W>(y + first + i, *reinterpret_cast<float(*)[W]>(v + i));
    } else {
      for (int i = 0; i < kEight && first + i < n; ++i) store_one(y + first + i, v[i]);
    }
  }
}

unsigned grid(const Context& ctx, int64_t wanted, int64_t resident) {
  return static_cast<unsigned>(std::min(wanted, resident * device_numbers(ctx.device).multiprocessors));
}

bool aligned(const void* p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

}  // namespace

void nf4_quantize(const Context& ctx, const ops::Nf4Quantize& args) {
  const int64_t blocks = args.to.scale_codes.sizes[0], groups = args.to.group_scales.sizes[0];
  const Buffer scales_buffer = ctx.scratch("nf4 scales", blocks * size_of(DType::f32));
  const Buffer sums_buffer = ctx.scratch("nf4 sums", groups * size_of(DType::f64));
  if (ctx.measuring()) return;
  const DeviceGuard guard(ctx);
  const auto stream = stream_of(ctx);
  auto* const scales = reinterpret_cast<float*>(scales_buffer.data());
  auto* const sums = reinterpret_cast<double*>(sums_buffer.data());
  if (blocks > 0) {
    dispatch("nf4_quantize", args.x.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      nf4_codes_kernel<T><<<grid(ctx, divide_up(blocks, kWarps), 8), kThreads, 0, stream>>>(
          args.x.as<T>(), args.x.sizes[0], args.to.codes.as<uint8_t>(), scales, blocks);
      check_launch("nf4_quantize");
    });
    nf4_sums_kernel<<<static_cast<unsigned>(groups), kThreads, 0, stream>>>(scales, blocks, sums);
    check_launch("nf4_quantize");
  }
  float* const offset = args.to.offset.as<float>();
  nf4_mean_kernel<<<1, kThreads, 0, stream>>>(sums, groups, blocks, offset);
  check_launch("nf4_quantize");
  if (blocks == 0) return;
  nf4_scales_kernel<<<grid(ctx, divide_up(groups, kWarps), 4), kThreads, 0, stream>>>(
      scales, blocks, offset, args.to.scale_codes.as<uint8_t>(), args.to.group_scales.as<float>(), groups);
  check_launch("nf4_quantize");
}

void nf4_dequantize(const Context& ctx, const ops::Nf4Dequantize& args) {
  const int64_t n = args.y.sizes[0];
  if (ctx.measuring() || n == 0) return;
  const DeviceGuard guard(ctx);
  const ops::Nf4& from = args.from;
  dispatch("nf4_dequantize", args.y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run =
        aligned(from.codes.data, 4) && aligned(args.y.data, 16) ? nf4_back_kernel<T, true> : nf4_back_kernel<T, false>;
    run<<<grid(ctx, divide_up(n, kThreads * kEight), 8), kThreads, 0, stream_of(ctx)>>>(
        from.codes.as<uint8_t>(), from.scale_codes.as<uint8_t>(), from.group_scales.as<float>(),
        from.offset.as<float>(), args.y.as<T>(), n);
    check_launch("nf4_dequantize");
  });
}

}  // namespace tigon::cuda
