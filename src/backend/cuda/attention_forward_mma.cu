// attention forward on tensor cores: 128 queries of a head by 4 warps, each with 32 of them, walk over the keys, 64 at
// a time. Scores, running maximum and sum, and o stay in registers; the next keys and values are fetched meanwhile.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/row_launch.cuh"

namespace tigon::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kTiles = 2;  // of 16 queries, per warp: each key and value fetched from shared memory serves both
constexpr int kQueries = 16 * kTiles * kWarps;

template <class T>
struct ForwardTensors {
  Heads<const T> q, k, v;
  Heads<T> o;
  float* lse;
};

// Keys per step: what registers allow, and shared memory on chips that have less of it.
template <int D>
inline constexpr int kKeys = D <= 96 ? 64 : 32;

template <int D>
inline constexpr int kForwardShared = MmaTile<D>::bytes(kQueries) + 4 * MmaTile<D>::bytes(kKeys<D>);

// Of 16 queries of a warp. A lane looks after rows lane/4 and lane/4 + 8.
struct Running {
  float largest[2], sum[2];  // of raw scores; of e^(scale·(score − largest)) over this lane's columns
};

// Scores become e^(scale·(score − largest)), and what was summed before is brought to the new maximum.
template <int N, int D8>
__device__ __forceinline__ void online_softmax(float (&s)[N][4], float (&out)[D8][4], Running& running,
                                               float scale_log2) {
  float shrink[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = running.largest[half];
#pragma unroll
    for (int j = 0; j < N; ++j) top = fmaxf(top, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float shift = top == -INFINITY ? 0.0f : __fmul_rn(top, scale_log2);
    // Rounded like the shift: fused, a maximum that stays would still shrink or swell what was summed, at every step.
    shrink[half] = exp2_fast(__fmul_rn(running.largest[half], scale_log2) - shift);
    running.largest[half] = top;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        s[j][e] = exp2_fast(fmaf(s[j][e], scale_log2, -shift));
        sum += s[j][e];
      }
    }
    running.sum[half] = fmaf(running.sum[half], shrink[half], sum);
  }
  // After the first keys the maximum seldom moves.
  if (!__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
  for (int j = 0; j < D8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) out[j][e] *= shrink[e / 2];
  }
}

// The first keys that the queries of a lane see. Only kernels for rows of several documents have a use for them.
template <bool kDocuments>
struct FirstKeys {
  int of[kDocuments ? kTiles : 1][2];

  __device__ __forceinline__ void load(const AttentionSizes& n, int64_t batch, int query) {
    if constexpr (kDocuments) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          of[m][half] = n.first_key(batch, query + 16 * m + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half);
        }
      }
    }
  }
};

// Scores of keys that a query does not see, `key` being the first of them, become -inf.
template <bool kDocuments, int N8>
__device__ __forceinline__ void mask(float (&s)[kTiles][N8][4], const AttentionSizes& n,
                                     const FirstKeys<kDocuments>& first, int query, int key) {
  const int seq = static_cast<int>(n.seq), lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = query + 16 * m + lane / 4 + 8 * half;
      const int visible = (n.causal ? min(row + 1, seq) : seq) - key;
#pragma unroll
      for (int j = 0; j < N8; ++j) {
        const int column = j * 8 + lane % 4 * 2;
        if (column >= visible) s[m][j][2 * half] = -INFINITY;
        if (column + 1 >= visible) s[m][j][2 * half + 1] = -INFINITY;
        if constexpr (kDocuments) {
          if (key + column < first.of[m][half]) s[m][j][2 * half] = -INFINITY;
          if (key + column + 1 < first.of[m][half]) s[m][j][2 * half + 1] = -INFINITY;
        }
      }
    }
  }
}

// The end of 16 queries: o and lse.
template <class T, int D>
__device__ __forceinline__ void write_queries(const ForwardTensors<T>& t, const AttentionSizes& n,
                                              const AttentionWork& work, int query, const float (&out)[D / 8][4],
                                              const Running& running) {
  const int seq = static_cast<int>(n.seq), lane = static_cast<int>(threadIdx.x) % 32;
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = running.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    inverse[half] = 1.0f / sum;
    const int row = query + lane / 4 + 8 * half;
    if (t.lse != nullptr && lane % 4 == 0 && row < seq) {
      t.lse[(work.batch * n.heads + work.head) * n.seq + row] = running.largest[half] * n.scale + logf(sum);
    }
  }
  write_rows<T, D>(t.o.head(work.batch, work.head), t.o.row_stride, query, seq, static_cast<int>(n.dim), out,
                   inverse[0], inverse[1]);
}

template <class T, int D, bool kDocuments>
__global__ void __launch_bounds__(kThreads)
    attention_forward_mma_kernel(const __grid_constant__ ForwardTensors<T> t, AttentionSizes n, AttentionGrid grid) {
  constexpr int N = kKeys<D>;
  extern __shared__ __align__(16) unsigned char memory[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const MmaTile<D> q_tile{shared};
  const auto k_tile = [&](int step) {
    const uint32_t pair =
        shared + MmaTile<D>::bytes(kQueries) + static_cast<uint32_t>(step % 2) * 2 * MmaTile<D>::bytes(N);
    return MmaTile<D>{pair};
  };
  const auto v_tile = [&](int step) { return MmaTile<D>{k_tile(step).address + MmaTile<D>::bytes(N)}; };

  const AttentionWork work = grid.work();
  const int64_t kv_head = work.head / n.group;
  const auto first_query = static_cast<int>(work.row_block * kQueries);
  const auto dim = static_cast<int>(n.dim), seq = static_cast<int>(n.seq);
  const T* keys = t.k.head(work.batch, kv_head);
  const T* values = t.v.head(work.batch, kv_head);
  const int end = n.causal ? min(seq, first_query + kQueries) : seq;
  const int begin = kDocuments ? n.first_key(work.batch, first_query) / N : 0;  // the first step
  const int steps = (end + N - 1) / N;
  const auto fetch = [&](int step) {
    k_tile(step).template fetch<N, kThreads>(keys, t.k.row_stride, step * N, seq, dim);
    v_tile(step).template fetch<N, kThreads>(values, t.v.row_stride, step * N, seq, dim);
    commit_copies();
  };
  q_tile.template fetch<kQueries, kThreads>(t.q.head(work.batch, work.head), t.q.row_stride, first_query, seq, dim);
  fetch(begin);

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kTiles;
  const int query = first_query + warp_row;  // the first of this warp
  float out[kTiles][D / 8][4] = {};
  Running running[kTiles];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) running[m] = {.largest = {-INFINITY, -INFINITY}, .sum = {0.0f, 0.0f}};
  FirstKeys<kDocuments> first;
  first.load(n, work.batch, query);
  const int warp_first = kDocuments ? n.first_key(work.batch, query) : 0;
  const int warp_last_first = kDocuments ? n.first_key(work.batch, query + 16 * kTiles - 1) : 0;
  bool load = true;

  constexpr bool kHeld = D <= 64;  // queries stay in registers where there is room
  uint32_t left[kHeld ? D / 16 : 1][kTiles][4];
  for (int step = begin; step < steps; ++step) {
    wait_for_copies();
    __syncthreads();  // what this step reads is there, and what it fetches over is no longer read
    if (step + 1 < steps) fetch(step + 1);
    const int key = step * N;
    if (n.causal && key > query + 16 * kTiles - 1) continue;  // behind all queries of this warp
    if (kDocuments && key + N <= warp_first) continue;        // before their documents

    float s[kTiles][N / 8][4];
    products<T>(s, q_tile, k_tile(step), left, kDocuments ? load : step == 0, warp_row);
    load = false;
    if (key + N > seq || (n.causal && key + N > query + 1) || key < warp_last_first) mask(s, n, first, query, key);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) online_softmax(s[m], out[m], running[m], n.scale * kLog2E);
    add_products<T>(out, s, v_tile(step));
  }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) write_queries<T, D>(t, n, work, query + 16 * m, out[m], running[m]);
}

template <class T, int D, bool kDocuments>
void launch(const Context& ctx, const ops::AttentionForward& args) {
  const AttentionSizes n = attention_sizes(args);
  const ForwardTensors<T> tensors{.q = heads_of<const T>(args.q),
                                  .k = heads_of<const T>(args.k),
                                  .v = heads_of<const T>(args.v),
                                  .o = heads_of<T>(args.o),
                                  .lse = args.lse ? args.lse.as<float>() : nullptr};
  const AttentionGrid all{
      .batches = n.batch, .heads = n.heads, .row_blocks = divide_up(n.seq, kQueries), .panels = 1, .last_first = true};
  const auto kernel = attention_forward_mma_kernel<T, D, kDocuments>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kForwardShared<D>),
        "attention_forward");
  launch_blocks(all, [&](const AttentionGrid& grid, unsigned count) {
    kernel<<<count, kThreads, kForwardShared<D>, stream_of(ctx)>>>(tensors, n, grid);
  });
  check_launch("attention_forward");
}

}  // namespace

bool attention_forward_mma(const Context& ctx, const ops::AttentionForward& args) {
  // The running maximum is one of raw scores, so the scale must not turn them around.
  if (!mma_fits(args) || !(args.scale >= 0) || !rows_aligned(args.q, args.k, args.v, args.o)) return false;
  with_mma_width(args.q, [&](auto* type, auto width) {
    using T = std::remove_pointer_t<decltype(type)>;
    args.starts ? launch<T, width, true>(ctx, args) : launch<T, width, false>(ctx, args);
  });
  return true;
}

}  // namespace tigon::cuda
