// softmax: each row is read once and held in registers as far as it fits.
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/softmax_row.cuh"

namespace tigon::cuda {

namespace {

template <class T, int W, int NV>
__global__ void __launch_bounds__(kRowThreads, row_blocks_for(NV))
    softmax_forward_kernel(unsigned blocks, Rows<const T> x, Rows<T> y, int64_t columns, float scale) {
  __shared__ MaxSum parts[kMaxTeam * kRowWarps];
  const Team team(blocks);
  const HeldRow<T, W, NV> row(x.at(team.row()), columns, team);
  // A negative scale turns the order round; then the first pass is over scaled values.
  MaxSum mine = no_max_sum();
  if (scale >= 0) {
    mine.max = __fmul_rn(row.largest(), scale);
    if (isnan(mine.max)) mine.max = lowest();  // −infinity times 0
  } else {
    row.for_each([&](int64_t, const float(&v)[W]) {
#pragma unroll
      for (int k = 0; k < W; ++k) mine.max = fmaxf(mine.max, __fmul_rn(v[k], scale));
    });
  }
  row.for_each([&](int64_t, const float(&v)[W]) {
#pragma unroll
    for (int k = 0; k < W; ++k) mine.sum += exp_from<T>(__fmul_rn(v[k], scale), mine.shift());
  });
  const MaxSum all = team.reduce(mine, no_max_sum(), JoinMaxSum(), parts);
  const float shift = all.shift(), inverse = 1.0f / all.sum;
  T* out = y.at(team.row());
  row.for_each([&](int64_t j, float(&v)[W]) {
#pragma unroll
    for (int k = 0; k < W; ++k) v[k] = exp_from<T>(__fmul_rn(v[k], scale), shift) * inverse;
    store<W>(out + j, v);
  });
}

template <class T, int W, int NV>
__global__ void __launch_bounds__(kRowThreads, row_blocks_for(NV))
    softmax_backward_kernel(unsigned blocks, Rows<const T> dy, Rows<const T> y, Rows<T> dx, int64_t columns,
                            float scale) {
  __shared__ float parts[kMaxTeam * kRowWarps];
  const Team team(blocks);
  const HeldRow<T, W, NV> row(y.at(team.row()), columns, team);
  const T* gradient = dy.at(team.row());
  T* out = dx.at(team.row());
  float dot = 0.0f;
  row.for_each([&](int64_t j, const float(&v)[W]) {
    float g[W];
    load<W>(gradient + j, g);
#pragma unroll
    for (int k = 0; k < W; ++k) dot = fmaf(g[k], v[k], dot);
  });
  dot = team.reduce(dot, 0.0f, Sum(), parts);
  row.for_each([&](int64_t j, float(&v)[W]) {
    float g[W];
    load<W>(gradient + j, g);
#pragma unroll
    for (int k = 0; k < W; ++k) v[k] = scale * v[k] * (g[k] - dot);
    store<W>(out + j, v);
  });
}

}  // namespace

void softmax_forward(const Context& ctx, const ops::SoftmaxForward& args) {
  if (ctx.measuring() || args.x.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const int64_t rows = args.x.sizes[0], columns = args.x.sizes[1];
  dispatch("softmax_forward", args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = rows_aligned(args.x, args.y);
    with_row_plan<T>(ctx, rows, columns, aligned, false, [&](auto w, auto nv, const RowPlan& plan) {
      launch_rows(ctx, "softmax_forward", plan, softmax_forward_kernel<T, w, nv>, plan.blocks, rows_of<const T>(args.x),
                  rows_of<T>(args.y), columns, static_cast<float>(args.scale));
    });
  });
}

void softmax_backward(const Context& ctx, const ops::SoftmaxBackward& args) {
  if (ctx.measuring() || args.y.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const int64_t rows = args.y.sizes[0], columns = args.y.sizes[1];
  dispatch("softmax_backward", args.y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = rows_aligned(args.dy, args.y, args.dx);
    with_row_plan<T>(ctx, rows, columns, aligned, false, [&](auto w, auto nv, const RowPlan& plan) {
      launch_rows(ctx, "softmax_backward", plan, softmax_backward_kernel<T, w, nv>, plan.blocks,
                  rows_of<const T>(args.dy), rows_of<const T>(args.y), rows_of<T>(args.dx), columns,
                  static_cast<float>(args.scale));
    });
  });
}

}  // namespace tigon::cuda
