// softmax: one block per row, which is read once and held in registers as far as it fits.
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/softmax_row.cuh"

namespace tigon::cuda {

namespace {

template <class T, int W, int NV>
__global__ void __launch_bounds__(kRowThreads, NV <= kFewHeld ? 2 : 1)
    softmax_forward_kernel(Rows<const T> x, Rows<T> y, int64_t rows, int64_t columns, float scale) {
  __shared__ float shared[32];
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    const HeldRow<T, W, NV> row(x.at(i), columns);
    MaxSum mine;
    row.for_each([&](int64_t, float(&v)[W]) {
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = __fmul_rn(v[k], scale);
      mine.template add<T>(v);
    });
    const MaxSum all = block_max_sum(mine, shared);
    const float shift = all.shift(), inverse = 1.0f / all.sum;
    T* out = y.at(i);
    row.for_each([&](int64_t j, float(&v)[W]) {
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = exp_for<T>(__fmul_rn(v[k], scale) - shift) * inverse;
      store<W>(out + j, v);
    });
  }
}

template <class T, int W, int NV>
__global__ void __launch_bounds__(kRowThreads, NV <= kFewHeld ? 2 : 1)
    softmax_backward_kernel(Rows<const T> dy, Rows<const T> y, Rows<T> dx, int64_t rows, int64_t columns, float scale) {
  __shared__ float shared[32];
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    const HeldRow<T, W, NV> row(y.at(i), columns);
    const T* gradient = dy.at(i);
    T* out = dx.at(i);
    float dot = 0.0f;
    row.for_each([&](int64_t j, float(&v)[W]) {
      float g[W];
      load<W>(gradient + j, g);
#pragma unroll
      for (int k = 0; k < W; ++k) dot = fmaf(g[k], v[k], dot);
    });
    dot = block_reduce(dot, 0.0f, Sum(), shared);
    row.for_each([&](int64_t j, float(&v)[W]) {
      float g[W];
      load<W>(gradient + j, g);
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = scale * v[k] * (g[k] - dot);
      store<W>(out + j, v);
    });
  }
}

}  // namespace

void softmax_forward(const Context& ctx, const ops::SoftmaxForward& args) {
  if (ctx.measuring() || args.x.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const int64_t rows = args.x.sizes[0], columns = args.x.sizes[1];
  dispatch("softmax_forward", args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    with_row_plan<T, kManyHeld>(rows, columns, rows_aligned(args.x, args.y), [&](auto w, auto nv, const RowPlan& plan) {
      softmax_forward_kernel<T, w, nv><<<plan.blocks, plan.threads, 0, stream_of(ctx)>>>(
          rows_of<const T>(args.x), rows_of<T>(args.y), rows, columns, static_cast<float>(args.scale));
    });
  });
  check_launch("softmax_forward");
}

void softmax_backward(const Context& ctx, const ops::SoftmaxBackward& args) {
  if (ctx.measuring() || args.y.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const int64_t rows = args.y.sizes[0], columns = args.y.sizes[1];
  dispatch("softmax_backward", args.y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = rows_aligned(args.dy, args.y, args.dx);
    with_row_plan<T, kManyHeld>(rows, columns, aligned, [&](auto w, auto nv, const RowPlan& plan) {
      softmax_backward_kernel<T, w, nv><<<plan.blocks, plan.threads, 0, stream_of(ctx)>>>(
          rows_of<const T>(args.dy), rows_of<const T>(args.y), rows_of<T>(args.dx), rows, columns,
          static_cast<float>(args.scale));
    });
  });
  check_launch("softmax_backward");
}

}  // namespace tigon::cuda
