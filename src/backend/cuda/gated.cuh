#pragma once

#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

// c = act(a)·b for any activation: swiglu and geglu. Every element once, nothing shared between threads.
namespace tigon::cuda {

struct Activation {
  float value;
  float slope;
};

// σ(x) from e = e^−|x|. Both σ and 1 − σ come from the same quotient, so that neither tail nor the slope σ·(1 − σ)
// suffers from a subtraction.
__device__ __forceinline__ Activation sigmoid_from(float x, float e) {
  const float larger = __fdividef(1.0f, 1.0f + e);
  const float smaller = e * larger;
  return {x < 0.0f ? smaller : larger, smaller * larger};
}

template <class T, class Act, int W>
__global__ void __launch_bounds__(256)
    gated_forward_kernel(Rows<const T> a, Rows<const T> b, Rows<T> c, int64_t rows, int64_t columns) {
  const int64_t row_step = int64_t{gridDim.x} * blockDim.y, step = int64_t{gridDim.y} * blockDim.x * W;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; i < rows; i += row_step) {
    for (int64_t j = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W; j < columns; j += step) {
      const auto a_raw = load_raw<W>(a.at(i) + j);
      const auto b_raw = load_raw<W>(b.at(i) + j);
      float av[W], bv[W], cv[W];
      unpack<T, W>(a_raw, av);
      unpack<T, W>(b_raw, bv);
#pragma unroll
      for (int k = 0; k < W; ++k) cv[k] = rounded<T>(Act()(av[k]).value) * bv[k];
      store<W>(c.at(i) + j, cv);
    }
  }
}

// A thread loads all it needs before it stores, so da may be a and db may be b.
template <class T, class Act, int W>
__global__ void __launch_bounds__(256)
    gated_backward_kernel(Rows<const T> dc, Rows<const T> a, Rows<const T> b, Rows<T> da, Rows<T> db, Rows<T> c,
                          int64_t rows, int64_t columns) {
  const int64_t row_step = int64_t{gridDim.x} * blockDim.y, step = int64_t{gridDim.y} * blockDim.x * W;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; i < rows; i += row_step) {
    for (int64_t j = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W; j < columns; j += step) {
      const auto dc_raw = load_raw<W>(dc.at(i) + j);
      const auto a_raw = load_raw<W>(a.at(i) + j);
      const auto b_raw = load_raw<W>(b.at(i) + j);
      float dcv[W], av[W], bv[W], dav[W], dbv[W], cv[W];
      unpack<T, W>(dc_raw, dcv);
      unpack<T, W>(a_raw, av);
      unpack<T, W>(b_raw, bv);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        const Activation act = Act()(av[k]);
        const float gate = rounded<T>(act.value);
        dav[k] = dcv[k] * bv[k] * act.slope;
        dbv[k] = dcv[k] * gate;
        cv[k] = gate * bv[k];
      }
      store<W>(da.at(i) + j, dav);
      store<W>(db.at(i) + j, dbv);
      if (c.data != nullptr) store<W>(c.at(i) + j, cv);
    }
  }
}

template <class Act, class Args>
void gated_forward(const Context& ctx, const Args& args, const char* where) {
  if (ctx.measuring() || args.a.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const int64_t rows = args.a.sizes[0], columns = args.a.sizes[1];
  dispatch(where, args.a.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto a = rows_of<const T>(args.a), b = rows_of<const T>(args.b);
    const auto c = rows_of<T>(args.c);
    if (columns % kLanes<T> == 0 && rows_aligned(args.a, args.b, args.c)) {
      const RowGrid shape = row_grid(rows, columns / kLanes<T>);
      gated_forward_kernel<T, Act, kLanes<T>><<<shape.grid, shape.block, 0, stream_of(ctx)>>>(a, b, c, rows, columns);
    } else {
      const RowGrid shape = row_grid(rows, columns);
      gated_forward_kernel<T, Act, 1><<<shape.grid, shape.block, 0, stream_of(ctx)>>>(a, b, c, rows, columns);
    }
  });
  check_launch(where);
}

template <class Act, class Args>
void gated_backward(const Context& ctx, const Args& args, const char* where) {
  if (ctx.measuring() || args.a.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const int64_t rows = args.a.sizes[0], columns = args.a.sizes[1];
  dispatch(where, args.a.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto dc = rows_of<const T>(args.dc), a = rows_of<const T>(args.a), b = rows_of<const T>(args.b);
    const auto da = rows_of<T>(args.da), db = rows_of<T>(args.db), c = rows_of<T>(args.c);
    if (columns % kLanes<T> == 0 && rows_aligned(args.dc, args.a, args.b, args.da, args.db, args.c)) {
      const RowGrid shape = row_grid(rows, columns / kLanes<T>);
      gated_backward_kernel<T, Act, kLanes<T>>
          <<<shape.grid, shape.block, 0, stream_of(ctx)>>>(dc, a, b, da, db, c, rows, columns);
    } else {
      const RowGrid shape = row_grid(rows, columns);
      gated_backward_kernel<T, Act, 1>
          <<<shape.grid, shape.block, 0, stream_of(ctx)>>>(dc, a, b, da, db, c, rows, columns);
    }
  });
  check_launch(where);
}

}  // namespace tigon::cuda
