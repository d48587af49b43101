// delta = Σ_d dout·o, one row per 1 to 32 neighbouring threads.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256;

// W elements at a time; `lanes` threads, a power of two, share a row.
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    attention_delta_kernel(Heads<const T> dout, Heads<const T> o, float* delta, AttentionSizes n, int lanes) {
  const int64_t rows = n.batch * n.seq * n.heads, step = int64_t{gridDim.x} * (kThreads / lanes);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  // Whole warps stay in the loop together, for the exchange below.
  for (int64_t first = int64_t{blockIdx.x} * (kThreads / lanes); first < rows; first += step) {
    const int64_t row = first + threadIdx.x / lanes;
    const int64_t head = row % n.heads, token = row / n.heads, i = token % n.seq, batch = token / n.seq;
    float sum = 0.0f;
    if (row < rows) {
      const T* a = dout.head(batch, head) + i * dout.row_stride;
      const T* b = o.head(batch, head) + i * o.row_stride;
      for (int64_t j = lane * W; j < n.dim; j += lanes * W) {
        float x[W], y[W];
        load<W>(a + j, x);
        load<W>(b + j, y);
#pragma unroll
        for (int e = 0; e < W; ++e) sum = fmaf(x[e], y[e], sum);
      }
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (row < rows && lane == 0) delta[(batch * n.heads + head) * n.seq + i] = sum;
  }
}

template <class T, int W>
void launch(const Context& ctx, const ops::AttentionBackward& args, float* delta) {
  const AttentionSizes n = attention_sizes(args);
  const auto lanes = static_cast<int>(power_of_two_for(divide_up(n.dim, W), 1, 32));
  attention_delta_kernel<T, W>
      <<<grid_size(divide_up(n.batch * n.seq * n.heads, kThreads / lanes)), kThreads, 0, stream_of(ctx)>>>(
          heads_of<const T>(args.dout), heads_of<const T>(args.o), delta, n, lanes);
}

}  // namespace

void attention_delta(const Context& ctx, const ops::AttentionBackward& args, float* delta) {
  if (args.q.elements() == 0) return;
  dispatch("attention_backward", args.q.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (args.q.sizes[3] % kLanes<T> == 0 && rows_aligned(args.dout, args.o)) {
      launch<T, kLanes<T>>(ctx, args, delta);
    } else {
      launch<T, 1>(ctx, args, delta);
    }
  });
  check_launch("attention_backward");
}

}  // namespace tigon::cuda
