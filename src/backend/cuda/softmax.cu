// softmax: each row is read once and held in registers as far as it fits.
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/row_kernel.cuh"

namespace tigon::cuda {

namespace {

// The row op of one that wants them all.
struct EveryRow {
  struct Info {};
  struct Shared {};
  static constexpr bool kLight = true, kTeams = true;

  __device__ __forceinline__ Info info(int64_t) const { return {}; }
  __device__ __forceinline__ bool wanted(Info) const { return true; }
  template <class Held>
  __device__ __forceinline__ float peek(Info, const Held&) const {
    return 0.0f;
  }
  template <int W, bool kShifted>
  __device__ __forceinline__ void skip(int64_t, const RowShare&) const {}
};

template <class T>
struct SoftmaxForward : EveryRow {
  Rows<T> y;
  float scale;

  template <class Row, class Out>
  __device__ __forceinline__ void run(Team& team, int64_t i, Info, float, const Row& row, Shared&, Out& out) const {
    constexpr int W = Row::kWidth;
    // What only fills a vector is −infinity, and has to stay so under any scale.
    const auto scaled = [&](int column, float v) {
      return scale > 0 || row.inside(column) ? __fmul_rn(v, scale) : lowest();
    };
    MaxSum mine = no_max_sum();
    if (scale > 0) {
      mine.max = __fmul_rn(row.largest(), scale);
    } else {  // the order turns round
      row.for_each([&](int j, const float(&v)[W]) {
#pragma unroll
        for (int k = 0; k < W; ++k) mine.max = fmaxf(mine.max, scaled(j + k, v[k]));
      });
    }
    const ExpFromLargest<T> from_own(mine.shift());
    row.for_each([&](int j, const float(&v)[W]) {
#pragma unroll
      for (int k = 0; k < W; ++k) mine.sum += from_own(scaled(j + k, v[k]));
    });
    const MaxSum all = team.join(mine);
    const ExpFromLargest<T> from_all(all.shift());
    const float inverse = 1.0f / all.sum;
    out.write(row, y.at(i), [&](int, float(&v)[W]) {
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = from_all(__fmul_rn(v[k], scale)) * inverse;
    });
  }
};

template <class T>
struct SoftmaxBackward : EveryRow {
  static constexpr bool kLight = false;  // dy beside y

  Rows<const T> dy;
  Rows<T> dx;
  float scale;

  template <class Row, class Out>
  __device__ __forceinline__ void run(Team& team, int64_t i, Info, float, const Row& y, Shared&, Out& out) const {
    constexpr int W = Row::kWidth;
    const T* gradient = dy.at(i);
    float dot = 0.0f;
    y.for_each([&](int j, const float(&v)[W]) {
      if (!Row::kShifted && !y.inside(j)) return;
      float g[W];
      y.beside(gradient, j, g);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        if (!Row::kShifted || y.inside(j + k)) dot = fmaf(g[k], v[k], dot);
      }
    });
    dot = team.join({0.0f, dot}).sum;
    out.write(y, dx.at(i), [&](int j, float(&v)[W]) {
      if (!Row::kShifted && !y.inside(j)) return;
      float g[W];
      y.beside(gradient, j, g);
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] = scale * v[k] * (g[k] - dot);
    });
  }
};

}  // namespace

void softmax_forward(const Context& ctx, const ops::SoftmaxForward& args) {
  if (ctx.measuring() || args.x.elements() == 0) return;
  const DeviceGuard guard(ctx);
  dispatch("softmax_forward", args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    run_rows<T>(ctx, "softmax_forward", SoftmaxForward<T>{{}, rows_of<T>(args.y), static_cast<float>(args.scale)},
                args.x, reach_of(false, args.x, args.y));
  });
}

void softmax_backward(const Context& ctx, const ops::SoftmaxBackward& args) {
  if (ctx.measuring() || args.y.elements() == 0) return;
  const DeviceGuard guard(ctx);
  dispatch("softmax_backward", args.y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const SoftmaxBackward<T> op{{}, rows_of<const T>(args.dy), rows_of<T>(args.dx), static_cast<float>(args.scale)};
    run_rows<T>(ctx, "softmax_backward", op, args.y, reach_of(false, args.y, args.dy, args.dx));
  });
}

}  // namespace tigon::cuda
