// lse2 = lse / ln 2 and delta = Σ_d dout·o, which all our kernels for attention's gradient begin with; and where the
// documents of a row end.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/group.cuh"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;  // rows that a thread has on their way at a time
static_assert(kAttentionPitch % kWarp == 0);

// A warp has 32 queries of a head, side by side in what it writes. W elements at a time; `lanes` threads, a power of
// two, share a row, so each has as many rows as a row has threads.
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    attention_statistics_kernel(Heads<const T> dout, Heads<const T> o, const float* lse, AttentionStatistics out,
                                AttentionSizes n, int64_t pitch, int lanes) {
  let_next_begin();
  // 32 bits, in which division is fast: what is written has 256 bytes for each unit.
  const auto heads = static_cast<uint32_t>(n.heads), blocks = static_cast<uint32_t>(pitch / kWarp);
  const uint32_t units = static_cast<uint32_t>(n.batch) * blocks * heads, step = gridDim.x * (kThreads / kWarp);
  const int lane = static_cast<int>(threadIdx.x) % lanes, sharing = kWarp / lanes;
  const int mine = lane * sharing + static_cast<int>(threadIdx.x) % kWarp / lanes;  // the query that this thread writes
  for (uint32_t unit = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp; unit < units; unit += step) {
    const uint32_t head = unit % heads, block = unit / heads % blocks, batch = unit / heads / blocks;
    const int64_t first = int64_t{block} * kWarp;
    const T* a = dout.head(batch, head) + first * dout.row_stride;
    const T* b = o.head(batch, head) + first * o.row_stride;
    float delta = 0.0f;
    for (int r = 0; r < lanes; r += kAhead) {
      float sums[kAhead] = {};
      for (int64_t j = lane * W; j < n.dim; j += lanes * W) {
        Raw<T, W> x[kAhead] = {}, y[kAhead] = {};
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          const int query = (r + k) * sharing + mine % sharing;
          if (r + k >= lanes || first + query >= n.seq) continue;
          x[k] = load_raw<W>(a + query * dout.row_stride + j);
          y[k] = load_raw<W>(b + query * o.row_stride + j);
        }
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          float of_dout[W], of_o[W];
          unpack<T, W>(x[k], of_dout);
          unpack<T, W>(y[k], of_o);
#pragma unroll
          for (int e = 0; e < W; ++e) sums[k] = fmaf(of_dout[e], of_o[e], sums[k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        for (int offset = lanes / 2; offset > 0; offset /= 2) sums[k] += __shfl_xor_sync(0xffffffffu, sums[k], offset);
        if (r + k == lane) delta = sums[k];
      }
    }
    const int64_t at = int64_t{batch} * n.heads + head, i = first + mine;
    out.lse2[at * pitch + i] = i < n.seq ? lse[at * n.seq + i] * kLog2E : INFINITY;
    out.delta[at * pitch + i] = delta;
  }
}

// A document ends before the first query that begins a later one: starts only rise.
__global__ void __launch_bounds__(kThreads) attention_ends_kernel(AttentionSizes n, int32_t* ends, int64_t pitch) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n.batch * pitch; i += step) {
    const int64_t batch = i / pitch, key = i % pitch;
    int64_t inside = min(key, n.seq), beyond = n.seq;
    while (inside < beyond) {
      const int64_t query = inside + (beyond - inside) / 2;
      n.starts[batch * n.seq + query] <= key ? inside = query + 1 : beyond = query;
    }
    ends[i] = static_cast<int32_t>(beyond);
  }
}

template <class T, int W>
void launch(const Context& ctx, const ops::AttentionBackward& args, const AttentionStatistics& out) {
  const AttentionSizes n = attention_sizes(args);
  const int64_t pitch = attention_pitch(n.seq), rows = n.batch * pitch * n.heads;
  const auto lanes = static_cast<int>(power_of_two_for(divide_up(n.dim, W), 1, kWarp));
  attention_statistics_kernel<T, W><<<grid_size(divide_up(rows, kThreads)), kThreads, 0, stream_of(ctx)>>>(
      heads_of<const T>(args.dout), heads_of<const T>(args.o), args.lse.as<float>(), out, n, pitch, lanes);
}

}  // namespace

void attention_statistics(const Context& ctx, const ops::AttentionBackward& args,
                          const AttentionStatistics& statistics) {
  if (statistics.ends != nullptr) {
    const AttentionSizes n = attention_sizes(args);
    const int64_t pitch = attention_pitch(n.seq);
    attention_ends_kernel<<<grid_size(divide_up(n.batch * pitch, kThreads)), kThreads, 0, stream_of(ctx)>>>(
        n, statistics.ends, pitch);
  }
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
