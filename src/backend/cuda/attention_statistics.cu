// lse2 = lse / ln 2 and delta = Σ_d dout·o, one row per 1 to 32 neighbouring threads.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256;

constexpr int kTogether = 8;  // queries of a head side by side, so that what is written fills sectors
static_assert(kAttentionPitch % kTogether == 0);

// W elements at a time; `lanes` threads, a power of two, share a row. Index has 32 bits wherever the number of rows
// allows it: division is slow in 64.
template <class T, int W, class Index>
__global__ void __launch_bounds__(kThreads)
    attention_statistics_kernel(Heads<const T> dout, Heads<const T> o, const float* lse, AttentionStatistics out,
                                AttentionSizes n, Index pitch, Index rows, int lanes) {
  const Index step = static_cast<Index>(gridDim.x) * (kThreads / lanes), heads = static_cast<Index>(n.heads);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  // Whole warps stay in the loop together, for the exchange below.
  for (Index first = static_cast<Index>(blockIdx.x) * (kThreads / lanes); first < rows; first += step) {
    const Index row = first + threadIdx.x / lanes, together = row / kTogether, group = together / heads;
    const Index head = together % heads, batch = group / (pitch / kTogether);
    const Index i = group % (pitch / kTogether) * kTogether + row % kTogether;
    const bool inside = row < rows && i < n.seq;
    float sum = 0.0f;
    if (inside) {
      const T* a = dout.head(batch, head) + int64_t{i} * dout.row_stride;
      const T* b = o.head(batch, head) + int64_t{i} * o.row_stride;
      for (int64_t j = lane * W; j < n.dim; j += lanes * W) {
        float x[W], y[W];
        load<W>(a + j, x);
        load<W>(b + j, y);
#pragma unroll
        for (int e = 0; e < W; ++e) sum = fmaf(x[e], y[e], sum);
      }
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (row < rows && lane == 0) {
      const int64_t at = int64_t{batch} * n.heads + head;
      out.lse2[at * pitch + i] = inside ? lse[at * n.seq + i] * kLog2E : INFINITY;
      out.delta[at * pitch + i] = sum;
    }
  }
}

template <class T, int W>
void launch(const Context& ctx, const ops::AttentionBackward& args, const AttentionStatistics& out) {
  const AttentionSizes n = attention_sizes(args);
  const int64_t pitch = attention_pitch(n.seq), rows = n.batch * pitch * n.heads;
  const auto lanes = static_cast<int>(power_of_two_for(divide_up(n.dim, W), 1, 32));
  const auto run = [&]<class Index>(Index) {
    attention_statistics_kernel<T, W, Index>
        <<<grid_size(divide_up(rows, kThreads / lanes)), kThreads, 0, stream_of(ctx)>>>(
            heads_of<const T>(args.dout), heads_of<const T>(args.o), args.lse.as<float>(), out, n,
            static_cast<Index>(pitch), static_cast<Index>(rows), lanes);
  };
  // Half of what 32 bits hold, so that a last step does not run over.
  rows < (int64_t{1} << 31) ? run(uint32_t{}) : run(int64_t{});
}

}  // namespace

void attention_statistics(const Context& ctx, const ops::AttentionBackward& args,
                          const AttentionStatistics& statistics) {
  if (args.q.elements() == 0) return;
  dispatch("attention_backward", args.q.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (args.q.sizes[3] % kLanes<T> == 0 && rows_aligned(args.dout, args.o)) {
      launch<T, kLanes<T>>(ctx, args, statistics);
    } else {
      launch<T, 1>(ctx, args, statistics);
    }
  });
  check_launch("attention_backward");
}

}  // namespace tigon::cuda
