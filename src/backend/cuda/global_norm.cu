// global_norm: squares are summed in f64, because the square of a large f32 gradient is no f32 any more. Pieces of
// fixed size have one partial sum each; those are added in order by one block.
#include <cmath>

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kSumThreads = 1024;
constexpr int64_t kPiece = ops::kNormPieceOnGpu;
constexpr int kMaxTensors = 96;  // per launch: they travel as its parameter

struct NormList {
  const void* data[kMaxTensors];
  int64_t elements[kMaxTensors];
  int64_t first_piece[kMaxTensors + 1];  // within this launch
  DType dtype[kMaxTensors];
  int count;
  double* partials;
};

// Elements [begin, end) of an array; the threads' sums depend on the number of threads alone.
template <class T>
__device__ __forceinline__ double squares(const void* data, int64_t begin, int64_t end) {
  constexpr int W = kLanes<T>;
  const T* p = static_cast<const T*>(data);
  double sum = 0;
  const bool aligned = reinterpret_cast<uintptr_t>(p) % 16 == 0;  // pieces begin at whole vectors
  const int64_t vectors_end = aligned ? begin + (end - begin) / W * W : begin;
#pragma unroll 4
  for (int64_t j = begin + int64_t{threadIdx.x} * W; j < vectors_end; j += int64_t{kThreads} * W) {
    float v[W];
    load<W>(p + j, v);
#pragma unroll
    for (int i = 0; i < W; ++i) sum = fma(static_cast<double>(v[i]), static_cast<double>(v[i]), sum);
  }
  for (int64_t j = vectors_end + threadIdx.x; j < end; j += kThreads) {
    const auto v = static_cast<double>(load_one(p + j));
    sum = fma(v, v, sum);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads) norm_pieces_kernel(const __grid_constant__ NormList list) {
  __shared__ double shared[32];
  const int64_t pieces = list.first_piece[list.count];
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    int low = 0, high = list.count;  // the last tensor that begins at this piece or before
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (list.first_piece[middle] <= piece) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const int64_t begin = (piece - list.first_piece[low]) * kPiece;
    const int64_t end = begin + kPiece < list.elements[low] ? begin + kPiece : list.elements[low];
    double sum = 0;
    switch (list.dtype[low]) {
      case DType::bf16: sum = squares<bf16>(list.data[low], begin, end); break;
      case DType::f16: sum = squares<f16>(list.data[low], begin, end); break;
      default: sum = squares<float>(list.data[low], begin, end); break;
    }
    sum = block_reduce(sum, 0.0, Sum(), shared);
    if (threadIdx.x == 0) list.partials[piece] = sum;
  }
}

__global__ void __launch_bounds__(kSumThreads) norm_sum_kernel(const double* partials, int64_t pieces, double scale,
                                                               double max_norm, float* norm_out, float* clip_out) {
  __shared__ double shared[32];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < pieces; i += blockDim.x) sum += partials[i];
  sum = block_reduce(sum, 0.0, Sum(), shared);
  if (threadIdx.x != 0) return;
  const double norm = fabs(scale) * sqrt(sum);
  *norm_out = static_cast<float>(norm);
  if (clip_out == nullptr) return;
  const double factor = max_norm > 0 ? fmin(1.0, max_norm / (norm + 1e-6)) : 1.0;
  *clip_out = isfinite(norm) ? static_cast<float>(factor * scale) : 0.0f;
}

int64_t pieces_of(const Tensor& t) { return divide_up(t.elements(), kPiece); }

}  // namespace

void global_norm(const Context& ctx, const ops::GlobalNorm& args) {
  int64_t pieces = 0;
  for (const Tensor& t : args.tensors) pieces += pieces_of(t);
  const Buffer scratch = ctx.scratch("global_norm_partials", args.pieces ? 0 : pieces * 8);
  if (ctx.measuring()) return;
  if (args.norm && args.norm.dtype != DType::f32) refuse_type("global_norm", args.norm.dtype);
  double* const partials = args.pieces ? args.pieces.as<double>() : scratch.as<double>();
  if (args.tensors.empty() && args.pieces) pieces = args.pieces.elements();
  const DeviceGuard guard(ctx);
  NormList list{};
  list.partials = partials;
  const auto flush = [&] {
    const int64_t waiting = list.first_piece[list.count];
    if (waiting > 0) {
      norm_pieces_kernel<<<static_cast<unsigned>(std::min(waiting, kMaxGridX)), kThreads, 0, stream_of(ctx)>>>(list);
      check_launch("global_norm");
    }
    list.partials += waiting;
    list.count = 0;
  };
  for (const Tensor& t : args.tensors) {
    if (t.elements() == 0) continue;
    if (size_of(t.dtype) > 4) refuse_type("global_norm", t.dtype);
    list.data[list.count] = t.data;
    list.elements[list.count] = t.elements();
    list.dtype[list.count] = t.dtype;
    list.first_piece[list.count + 1] = list.first_piece[list.count] + pieces_of(t);
    if (++list.count == kMaxTensors) flush();
  }
  flush();
  if (!args.norm) return;
  norm_sum_kernel<<<1, kSumThreads, 0, stream_of(ctx)>>>(
      partials, pieces, args.scale, args.max_norm, args.norm.as<float>(), args.clip ? args.clip.as<float>() : nullptr);
  check_launch("global_norm");
}

}  // namespace tigon::cuda
