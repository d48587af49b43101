// The elementary ops: any strides, any mix of types, one thread per element or one block per sum.
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/element.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kMaxWarps = 32;

// A tensor's elements where a kernel finds them.
struct Operand {
  void* data;
  DType dtype;
  int64_t strides[kMaxRank];
};

// The shape that up to three operands share.
struct Shape {
  int rank;
  int64_t sizes[kMaxRank];
  int64_t count;
};

template <int kOperands>
struct Elements {
  Shape shape;
  Operand operands[kOperands];
};

// Neighbouring dimensions that every operand walks as one are made one: most calls then need no division.
template <int kOperands>
Elements<kOperands> elements(const Tensor* const (&tensors)[kOperands]) {
  Elements<kOperands> all{};
  const Tensor& like = *tensors[0];
  all.shape.count = like.elements();
  for (int o = 0; o < kOperands; ++o) all.operands[o] = {tensors[o]->data, tensors[o]->dtype, {}};
  int rank = 0;
  for (int d = 0; d < like.rank; ++d) {
    if (like.sizes[d] == 1) continue;
    bool joins = rank > 0;
    for (int o = 0; joins && o < kOperands; ++o)
      joins = all.operands[o].strides[rank - 1] == like.sizes[d] * tensors[o]->strides[d];
    if (!joins) {
      all.shape.sizes[rank] = 1;
      ++rank;
    }
    all.shape.sizes[rank - 1] *= like.sizes[d];
    for (int o = 0; o < kOperands; ++o) all.operands[o].strides[rank - 1] = tensors[o]->strides[d];
  }
  all.shape.rank = rank;
  return all;
}

// Offsets of element e in each operand. Index is 32 bits wide wherever the count allows it: division is slow in 64.
template <class Index, int kOperands>
__device__ inline void offsets_of(const Elements<kOperands>& all, Index e, int64_t (&offsets)[kOperands]) {
#pragma unroll
  for (int o = 0; o < kOperands; ++o) offsets[o] = 0;
#pragma unroll
  for (int d = kMaxRank - 1; d >= 0; --d) {
    if (d >= all.shape.rank) continue;
    Index i = e;
    if (d > 0) {
      const Index size = static_cast<Index>(all.shape.sizes[d]);
      i = e % size;
      e /= size;
    }
#pragma unroll
    for (int o = 0; o < kOperands; ++o) offsets[o] += static_cast<int64_t>(i) * all.operands[o].strides[d];
  }
}

struct Activation {
  float value, slope;
};

// σ(x) and σ·(1 − σ) from one quotient, so that neither tail suffers from a subtraction.
__device__ inline Activation sigmoid(float x) {
  const float e = expf(-fabsf(x));
  const float larger = 1.0f / (1.0f + e), smaller = e * larger;
  return {x < 0.0f ? smaller : larger, smaller * larger};
}

__device__ inline Activation silu(float x) {
  const Activation s = sigmoid(x);
  return {x * s.value, s.value + x * s.slope};
}

// ½·(1 + tanh(u)) = sigmoid(2u), which keeps its digits where tanh is near −1.
__device__ inline Activation gelu_tanh(float x) {
  constexpr float kSlope = 1.5957691216057308f, kCube = 0.044715f;  // 2·sqrt(2/π)
  const Activation s = sigmoid(kSlope * (x + kCube * x * x * x));
  // The square of 1e20 is infinite; s.slope is 0 long before.
  return {x * s.value, s.value + x * s.slope * kSlope * (1.0f + 3.0f * kCube * fminf(x * x, 1e4f))};
}

__device__ inline Activation gelu_erf(float x) {
  const float cdf = 0.5f * erfcf(-0.70710678118654752f * x);
  return {x * cdf, cdf + x * 0.3989422804014327f * expf(-0.5f * x * x)};
}

__device__ inline float apply(ops::UnaryOp op, float x) {
  switch (op) {
    case ops::UnaryOp::copy: return x;
    case ops::UnaryOp::square: return x * x;
    case ops::UnaryOp::sqrt: return sqrtf(x);
    case ops::UnaryOp::rsqrt: return 1.0f / sqrtf(x);
    case ops::UnaryOp::exp: return expf(x);
    case ops::UnaryOp::log: return logf(x);
    case ops::UnaryOp::tanh: return tanhf(x);
    case ops::UnaryOp::silu: return silu(x).value;
    case ops::UnaryOp::gelu_tanh: return gelu_tanh(x).value;
    case ops::UnaryOp::gelu_erf: return gelu_erf(x).value;
  }
  return 0.0f;
}

__device__ inline float apply(ops::BinaryOp op, float a, float b) {
  switch (op) {
    case ops::BinaryOp::add: return a + b;
    case ops::BinaryOp::sub: return a - b;
    case ops::BinaryOp::mul: return a * b;
    case ops::BinaryOp::div: return a / b;
    case ops::BinaryOp::silu_grad: return a * silu(b).slope;
    case ops::BinaryOp::gelu_tanh_grad: return a * gelu_tanh(b).slope;
    case ops::BinaryOp::gelu_erf_grad: return a * gelu_erf(b).slope;
    case ops::BinaryOp::tanh_grad: return a * (1.0f - b * b);
  }
  return 0.0f;
}

// An element's bits, and later its value: what is loaded is not looked at before all loads of a thread are on their
// way.
__device__ inline uint32_t load_bits(const Operand& t, int64_t offset) {
  return t.dtype == DType::f32 ? static_cast<const uint32_t*>(t.data)[offset]
                               : static_cast<const uint16_t*>(t.data)[offset];
}

__device__ inline float value_of(const Operand& t, uint32_t bits) {
  switch (t.dtype) {
    case DType::bf16: return __uint_as_float(bits << 16);
    case DType::f16: return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
    default: return __uint_as_float(bits);
  }
}

constexpr int kEach = 4;  // elements per thread and turn

template <class Index>
__global__ void unary_kernel(const Elements<2> all, ops::UnaryOp op, float alpha, float beta) {
  const Operand &y = all.operands[0], &x = all.operands[1];
  const int64_t count = all.shape.count, step = static_cast<int64_t>(gridDim.x) * kThreads * kEach;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x; e < count; e += step) {
    uint32_t bits[kEach];
    int64_t to[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      if (e + u * kThreads >= count) continue;
      int64_t at[2];
      offsets_of(all, static_cast<Index>(e + u * kThreads), at);
      to[u] = at[0];
      bits[u] = alpha == 0.0f ? 0 : load_bits(x, at[1]);
    }
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      if (e + u * kThreads >= count) continue;
      write_element(y.data, y.dtype, to[u], apply(op, fmaf(alpha, value_of(x, bits[u]), beta)));
    }
  }
}

template <class Index>
__global__ void binary_kernel(const Elements<3> all, ops::BinaryOp op) {
  const Operand &y = all.operands[0], &a = all.operands[1], &b = all.operands[2];
  const int64_t count = all.shape.count, step = static_cast<int64_t>(gridDim.x) * kThreads * kEach;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x; e < count; e += step) {
    uint32_t a_bits[kEach], b_bits[kEach];
    int64_t to[kEach];
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      if (e + u * kThreads >= count) continue;
      int64_t at[3];
      offsets_of(all, static_cast<Index>(e + u * kThreads), at);
      to[u] = at[0];
      a_bits[u] = load_bits(a, at[1]);
      b_bits[u] = load_bits(b, at[2]);
    }
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      if (e + u * kThreads >= count) continue;
      write_element(y.data, y.dtype, to[u], apply(op, value_of(a, a_bits[u]), value_of(b, b_bits[u])));
    }
  }
}

// Adds up in f32 and hands over to f64 before the sum grows long.
class LongSum {
 public:
  __device__ void add(float x) {
    part_ += x;
    if (++count_ % 64 == 0) flush();
  }
  __device__ double total() {
    flush();
    return total_;
  }

 private:
  __device__ void flush() {
    total_ += part_;
    part_ = 0.0f;
  }
  double total_ = 0.0;
  float part_ = 0.0f;
  int count_ = 0;
};

// A NaN on either side stays.
__device__ inline float larger(float a, float b) { return b > a || b != b ? b : a; }

// One block per row.
__global__ void reduce_row_kernel(Operand x, Operand y, int64_t rows, int64_t columns, ops::ReduceOp op) {
  __shared__ double sums[kMaxWarps];
  __shared__ float largests[kMaxWarps];
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    const int64_t first = i * x.strides[0];
    float result;
    if (op == ops::ReduceOp::max) {
      float largest = -INFINITY;
      for (int64_t j = threadIdx.x; j < columns; j += blockDim.x)
        largest = larger(largest, read_element(x.data, x.dtype, first + j * x.strides[1]));
      result = block_reduce(
          largest, -INFINITY, [](float a, float b) { return larger(a, b); }, largests);
    } else {
      LongSum sum;
      for (int64_t j = threadIdx.x; j < columns; j += blockDim.x)
        sum.add(read_element(x.data, x.dtype, first + j * x.strides[1]));
      double total = block_reduce(sum.total(), 0.0, Sum(), sums);
      if (op == ops::ReduceOp::mean) total /= static_cast<double>(columns);
      result = static_cast<float>(total);
    }
    if (threadIdx.x == 0) write_element(y.data, y.dtype, i * y.strides[0], result);
  }
}

// One block per 32 columns: each warp takes every 32nd row, then the first warp adds up the warps in order.
__global__ void reduce_column_kernel(Operand x, Operand y, int64_t rows, int64_t columns, bool mean) {
  __shared__ double parts[kMaxWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kWarp; first < columns;
       first += static_cast<int64_t>(gridDim.x) * kWarp) {
    const int64_t j = first + lane;
    LongSum sum;
    if (j < columns) {
      for (int64_t i = warp; i < rows; i += kMaxWarps)
        sum.add(read_element(x.data, x.dtype, i * x.strides[0] + j * x.strides[1]));
    }
    parts[warp][lane] = sum.total();
    __syncthreads();
    if (warp == 0 && j < columns) {
      double total = 0.0;
      for (int w = 0; w < kMaxWarps; ++w) total += parts[w][lane];
      if (mean) total /= static_cast<double>(rows);
      write_element(y.data, y.dtype, j * y.strides[0], static_cast<float>(total));
    }
    __syncthreads();
  }
}

// An index beyond the columns, which only a CPU can refuse before the work starts, is passed over like a negative one.
__global__ void gather_kernel(Operand x, Operand index, Operand y, int64_t rows, int64_t columns) {
  const auto step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows; i += step) {
    const int64_t column = read_index(index.data, index.dtype, i * index.strides[0]);
    const bool inside = column >= 0 && column < columns;
    const float value = inside ? read_element(x.data, x.dtype, i * x.strides[0] + column * x.strides[1]) : 0.0f;
    write_element(y.data, y.dtype, i * y.strides[0], value);
  }
}

__global__ void scatter_add_kernel(Operand x, Operand index, Operand y, int64_t rows, int64_t columns) {
  const auto step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows; i += step) {
    const int64_t column = read_index(index.data, index.dtype, i * index.strides[0]);
    if (column < 0 || column >= columns) continue;
    const int64_t at = i * y.strides[0] + column * y.strides[1];
    write_element(y.data, y.dtype, at,
                  read_element(y.data, y.dtype, at) + read_element(x.data, x.dtype, i * x.strides[0]));
  }
}

Operand operand(const Tensor& t) {
  Operand o{t.data, t.dtype, {}};
  std::copy(t.strides, t.strides + t.rank, o.strides);
  return o;
}

unsigned blocks_for(int64_t count) { return grid_size(std::min<int64_t>(divide_up(count, kThreads), 1 << 20)); }

}  // namespace

void unary(const Context& ctx, const ops::Unary& args) {
  check_storage("unary", {args.x, args.y});
  if (ctx.measuring() || args.y.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const Elements<2> all = elements<2>({&args.y, &args.x});
  const auto kernel = all.shape.count < INT32_MAX ? unary_kernel<uint32_t> : unary_kernel<int64_t>;
  const float alpha = static_cast<float>(args.alpha);
  kernel<<<blocks_for(divide_up(all.shape.count, kEach)), kThreads, 0, stream_of(ctx)>>>(all, args.op, alpha,
                                                                                         static_cast<float>(args.beta));
  check_launch("unary");
}

void binary(const Context& ctx, const ops::Binary& args) {
  check_storage("binary", {args.a, args.b, args.y});
  if (ctx.measuring() || args.y.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const Elements<3> all = elements<3>({&args.y, &args.a, &args.b});
  const auto kernel = all.shape.count < INT32_MAX ? binary_kernel<uint32_t> : binary_kernel<int64_t>;
  kernel<<<blocks_for(divide_up(all.shape.count, kEach)), kThreads, 0, stream_of(ctx)>>>(all, args.op);
  check_launch("binary");
}

void reduce(const Context& ctx, const ops::Reduce& args) {
  check_storage("reduce", {args.x, args.y});
  if (ctx.measuring() || args.y.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const int64_t rows = args.x.sizes[0], columns = args.x.sizes[1];
  if (args.over_rows) {
    reduce_column_kernel<<<grid_size(divide_up(columns, kWarp)), kMaxWarps * kWarp, 0, stream_of(ctx)>>>(
        operand(args.x), operand(args.y), rows, columns, args.op == ops::ReduceOp::mean);
  } else {
    const int64_t threads = std::clamp<int64_t>(round_up(columns, kWarp), kWarp, kThreads);
    reduce_row_kernel<<<grid_size(rows), static_cast<unsigned>(threads), 0, stream_of(ctx)>>>(
        operand(args.x), operand(args.y), rows, columns, args.op);
  }
  check_launch("reduce");
}

void gather(const Context& ctx, const ops::Gather& args) {
  check_storage("gather", {args.x, args.y});
  const int64_t rows = args.x.sizes[0];
  if (ctx.measuring() || rows == 0) return;
  const DeviceGuard guard(ctx);
  gather_kernel<<<blocks_for(rows), kThreads, 0, stream_of(ctx)>>>(operand(args.x), operand(args.index),
                                                                   operand(args.y), rows, args.x.sizes[1]);
  check_launch("gather");
}

void scatter_add(const Context& ctx, const ops::ScatterAdd& args) {
  check_storage("scatter_add", {args.x, args.y});
  const int64_t rows = args.y.sizes[0];
  if (ctx.measuring() || rows == 0) return;
  const DeviceGuard guard(ctx);
  scatter_add_kernel<<<blocks_for(rows), kThreads, 0, stream_of(ctx)>>>(operand(args.x), operand(args.index),
                                                                        operand(args.y), rows, args.y.sizes[1]);
  check_launch("scatter_add");
}

}  // namespace tigon::cuda
