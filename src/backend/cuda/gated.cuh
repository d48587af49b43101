#pragma once

#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

// c = act(a)·b for any activation: swiglu and geglu. Every element once, nothing shared between threads. Threads are
// dealt out over the vectors of all rows, so that none is idle whatever a row's length.
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

inline constexpr int kGatedThreads = 256;

// The vectors of a [rows, columns] tensor, numbered row by row. Index has 32 bits wherever the number of vectors allows
// it: division is slow in 64.
template <class Index, int W>
struct RowVectors {
  Index count, per_row;

  __device__ __forceinline__ Index first() const {
    return static_cast<Index>(blockIdx.x) * kGatedThreads + threadIdx.x;
  }
  __device__ __forceinline__ Index step() const { return static_cast<Index>(gridDim.x) * kGatedThreads; }
  __device__ __forceinline__ void locate(Index v, int64_t& row, int64_t& column) const {
    const Index i = v / per_row;
    row = i;
    column = static_cast<int64_t>(v - i * per_row) * W;
  }
};

template <class T, template <class> class Act, int W, class Index>
__global__ void __launch_bounds__(kGatedThreads)
    gated_forward_kernel(Rows<const T> a, Rows<const T> b, Rows<T> c, RowVectors<Index, W> vectors) {
  for (Index v = vectors.first(); v < vectors.count; v += vectors.step()) {
    int64_t i, j;
    vectors.locate(v, i, j);
    const auto a_raw = load_raw<W>(a.at(i) + j);
    const auto b_raw = load_raw<W>(b.at(i) + j);
    float av[W], bv[W], cv[W];
    unpack<T, W>(a_raw, av);
    unpack<T, W>(b_raw, bv);
#pragma unroll
    for (int k = 0; k < W; ++k) cv[k] = rounded<T>(Act<T>()(av[k]).value) * bv[k];
    store<W>(c.at(i) + j, cv);
  }
}

// A thread loads all it needs before it stores, so da may be a, db may be b and c may be dc.
template <class T, template <class> class Act, int W, class Index>
__global__ void __launch_bounds__(kGatedThreads)
    gated_backward_kernel(Rows<const T> dc, Rows<const T> a, Rows<const T> b, Rows<T> da, Rows<T> db, Rows<T> c,
                          RowVectors<Index, W> vectors) {
  for (Index v = vectors.first(); v < vectors.count; v += vectors.step()) {
    int64_t i, j;
    vectors.locate(v, i, j);
    const auto dc_raw = load_raw<W>(dc.at(i) + j);
    const auto a_raw = load_raw<W>(a.at(i) + j);
    const auto b_raw = load_raw<W>(b.at(i) + j);
    float dcv[W], av[W], bv[W], dav[W], dbv[W], cv[W];
    unpack<T, W>(dc_raw, dcv);
    unpack<T, W>(a_raw, av);
    unpack<T, W>(b_raw, bv);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const Activation act = Act<T>()(av[k]);
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

// f(a null pointer to the type, the vectors) with vectors as long and indices as short as these rows allow.
template <class F>
void with_vectors(const char* where, DType dtype, int64_t rows, int64_t columns, bool aligned, const F& f) {
  dispatch(where, dtype, [&](auto* type) {
    constexpr int W = kLanes<std::remove_pointer_t<decltype(type)>>;
    if (!aligned || columns % W != 0) return f(type, RowVectors<int64_t, 1>{rows * columns, columns});
    const int64_t count = rows * (columns / W);
    // Half of what 32 bits hold, so that a last step does not run over.
    if (count > (int64_t{1} << 30)) return f(type, RowVectors<int64_t, W>{count, columns / W});
    f(type, RowVectors<uint32_t, W>{static_cast<uint32_t>(count), static_cast<uint32_t>(columns / W)});
  });
  check_launch(where);
}

template <class Index, int W>
unsigned gated_blocks(const RowVectors<Index, W>& vectors) {
  return static_cast<unsigned>(std::min(divide_up(static_cast<int64_t>(vectors.count), kGatedThreads), kMaxGridX));
}

template <template <class> class Act, class Args>
void gated_forward(const Context& ctx, const Args& args, const char* where) {
  if (ctx.measuring() || args.a.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const bool aligned = rows_aligned(args.a, args.b, args.c);
  with_vectors(where, args.a.dtype, args.a.sizes[0], args.a.sizes[1], aligned, [&]<class T>(T*, auto vectors) {
    gated_forward_kernel<T, Act><<<gated_blocks(vectors), kGatedThreads, 0, stream_of(ctx)>>>(
        rows_of<const T>(args.a), rows_of<const T>(args.b), rows_of<T>(args.c), vectors);
  });
}

template <template <class> class Act, class Args>
void gated_backward(const Context& ctx, const Args& args, const char* where) {
  if (ctx.measuring() || args.a.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const bool aligned = rows_aligned(args.dc, args.a, args.b, args.da, args.db, args.c);
  with_vectors(where, args.a.dtype, args.a.sizes[0], args.a.sizes[1], aligned, [&]<class T>(T*, auto vectors) {
    gated_backward_kernel<T, Act><<<gated_blocks(vectors), kGatedThreads, 0, stream_of(ctx)>>>(
        rows_of<const T>(args.dc), rows_of<const T>(args.a), rows_of<const T>(args.b), rows_of<T>(args.da),
        rows_of<T>(args.db), rows_of<T>(args.c), vectors);
  });
}

}  // namespace tigon::cuda
