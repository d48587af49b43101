// attention backward on tensor cores, in the two passes of attention_backward.cu: blocks of keys walk over the queries
// that see them for dk and dv, then blocks of queries over the keys they see for dq. A warp owns its rows, so that
// scores and gradients of scores are in its registers just as the next product wants them.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/row_launch.cuh"

namespace tigon::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// What a pass reads and writes. Rows stay, columns are walked over. Keys as rows: row = k, row_other = v, column = q,
// column_other = dout, out = dk, other = dv. Queries as rows: row = q, row_other = dout, column = k, column_other = v,
// out = dq.
template <class T>
struct BackwardTensors {
  Heads<const T> row, row_other, column, column_other;
  Heads<T> out, other;
  const float* lse2;    // [batch, heads, pitch]
  const float* delta;   // [batch, heads, pitch]
  const int32_t* ends;  // [batch, pitch], or null
  int64_t pitch;
};

template <int D, bool kRowsAreKeys>
struct BackwardShape {
  // What registers allow: twice the rows for each column fetched from shared memory, or rows that stay in registers.
  static constexpr int kTiles = D <= 64 ? 2 : 1;  // of 16 rows, per warp
  static constexpr bool kHeld = !(kRowsAreKeys && kTiles == 2);
  static constexpr int kRows = 16 * kTiles * kWarps;  // per thread block
  static constexpr int kColumns = 32;                 // per step
  // Two tiles of rows; twice, two tiles of columns and their lse and delta.
  static constexpr int kStage = 2 * MmaTile<D>::bytes(kColumns) + 2 * kColumns * static_cast<int>(sizeof(float));
  static constexpr int kShared = 2 * MmaTile<D>::bytes(kRows) + 2 * kStage;
};

// How far documents let the rows of a lane see: keys the queries before it, queries the keys from it on. Only kernels
// for rows of several documents have a use for them.
template <bool kRowsAreKeys, bool kDocuments, int kTiles>
struct Limits {
  int of[kDocuments ? kTiles : 1][2];

  template <class T>
  static __device__ __forceinline__ int limit(const BackwardTensors<T>& t, const AttentionSizes& n, int64_t batch,
                                              int row) {
    if constexpr (kRowsAreKeys) return t.ends[batch * t.pitch + row];
    return n.first_key(batch, row);
  }
  template <class T>
  __device__ __forceinline__ void load(const BackwardTensors<T>& t, const AttentionSizes& n, int64_t batch, int row) {
    if constexpr (kDocuments) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          of[m][half] = limit(t, n, batch, row + 16 * m + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half);
        }
      }
    }
  }
  __device__ __forceinline__ bool hides(int m, int half, int column) const {
    if constexpr (!kDocuments) return false;
    const int limit = of[kDocuments ? m : 0][half];
    return kRowsAreKeys ? column >= limit : column < limit;
  }
};

// Scores that no query sees become one whose exponential is 0.
template <bool kRowsAreKeys, bool kDocuments, int kTiles, int N8>
__device__ __forceinline__ void mask(float (&s)[kTiles][N8][4], const AttentionSizes& n,
                                     const Limits<kRowsAreKeys, kDocuments, kTiles>& limits, int row, int column) {
  const int seq = static_cast<int>(n.seq), lane = static_cast<int>(threadIdx.x) % 32;
  const float nothing = n.scale < 0 ? INFINITY : -INFINITY;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int j = 0; j < N8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = row + 16 * m + lane / 4 + e / 2 * 8, c = column + j * 8 + lane % 4 * 2 + e % 2;
        const bool hidden = c >= seq || (n.causal && (kRowsAreKeys ? c < r : c > r));
        if (hidden || limits.hides(m, e / 2, c)) s[m][j][e] = nothing;
      }
    }
  }
}

// lse2 and delta of the queries: of a lane's own rows, or of the columns at hand.
template <int kTiles>
struct RowStatistics {
  float lse2[kTiles][2], delta[kTiles][2];

  template <class T>
  __device__ __forceinline__ void load(const BackwardTensors<T>& t, const AttentionSizes& n, const AttentionWork& work,
                                       int row) {
    const int seq = static_cast<int>(n.seq);
    const int64_t base = (work.batch * n.heads + work.head) * t.pitch;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = row + 16 * m + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
        lse2[m][half] = query < seq ? t.lse2[base + query] : 0.0f;
        delta[m][half] = query < seq ? t.delta[base + query] : 0.0f;
      }
    }
  }
};

// p = e^(scale·score − lse) in place of scores, and ds = p·(dp − delta) in place of dp.
template <bool kRowsAreKeys, int kTiles, int N8>
__device__ __forceinline__ void score_gradients(float (&p)[kTiles][N8][4], float (&ds)[kTiles][N8][4],
                                                const RowStatistics<kTiles>& of_rows, const float* column_lse2,
                                                const float* column_delta, float scale_log2) {
  column_lse2 += threadIdx.x % 4 * 2;
  column_delta += threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < N8; ++j) {
    float lse2[2], delta[2];
    if constexpr (kRowsAreKeys) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        lse2[e] = column_lse2[j * 8 + e];
        delta[e] = column_delta[j * 8 + e];
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float shift = kRowsAreKeys ? lse2[e % 2] : of_rows.lse2[m][e / 2];
        p[m][j][e] = exp2_fast(fmaf(p[m][j][e], scale_log2, -shift));
        ds[m][j][e] = p[m][j][e] * (ds[m][j][e] - (kRowsAreKeys ? delta[e % 2] : of_rows.delta[m][e / 2]));
      }
    }
  }
}

template <class T, int D, bool kRowsAreKeys, bool kDocuments>
__global__ void __launch_bounds__(kThreads)
    attention_backward_mma_kernel(const __grid_constant__ BackwardTensors<T> t, AttentionSizes n, AttentionGrid grid) {
  using Shape = BackwardShape<D, kRowsAreKeys>;
  constexpr int kTiles = Shape::kTiles, M = Shape::kRows, N = Shape::kColumns;
  extern __shared__ __align__(16) unsigned char memory[];
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  constexpr uint32_t kRowBytes = MmaTile<D>::bytes(M), kColumnBytes = MmaTile<D>::bytes(N);
  const MmaTile<D> rows{shared}, other_rows{shared + kRowBytes};
  const auto stage = [&](int step) { return 2 * kRowBytes + static_cast<uint32_t>(step % 2 * Shape::kStage); };

  const AttentionWork work = grid.work();
  const auto dim = static_cast<int>(n.dim), seq = static_cast<int>(n.seq);
  const auto first_row = static_cast<int>(work.row_block * M);
  int begin = n.causal && kRowsAreKeys ? first_row / N * N : 0;
  int end = n.causal && !kRowsAreKeys ? min(seq, first_row + M) : seq;
  if constexpr (kDocuments && kRowsAreKeys) end = t.ends[work.batch * t.pitch + min(seq, first_row + M) - 1];
  if constexpr (kDocuments && !kRowsAreKeys) begin = n.first_key(work.batch, first_row) / N * N;
  const int steps_per_head = (end - begin + N - 1) / N;
  const int steps = steps_per_head * (kRowsAreKeys ? static_cast<int>(n.group) : 1);

  // Steps run through the columns of one query head after another.
  const auto fetch = [&](int step) {
    const int64_t q_head = kRowsAreKeys ? work.head * n.group + step / steps_per_head : work.head;
    const int64_t head = kRowsAreKeys ? q_head : work.head / n.group;
    const int column = begin + step % steps_per_head * N;
    const uint32_t to = shared + stage(step);
    const MmaTile<D> columns{to}, other_columns{to + kColumnBytes};
    columns.template fetch<N, kThreads>(t.column.head(work.batch, head), t.column.row_stride, column, seq, dim);
    other_columns.template fetch<N, kThreads>(t.column_other.head(work.batch, head), t.column_other.row_stride, column,
                                              seq, dim);
    if constexpr (kRowsAreKeys) {
      static_assert(2 * N <= kThreads);
      const int i = static_cast<int>(threadIdx.x);
      if (i < 2 * N) {
        const float* from = (i < N ? t.lse2 : t.delta) + (work.batch * n.heads + q_head) * t.pitch;
        const int query = column + i % N;
        const bool inside = query < seq;
        copy_async_float(to + 2 * kColumnBytes + static_cast<uint32_t>(i) * 4, inside ? from + query : from, inside);
      }
    }
    commit_copies();
  };
  rows.template fetch<M, kThreads>(t.row.head(work.batch, work.head), t.row.row_stride, first_row, seq, dim);
  other_rows.template fetch<M, kThreads>(t.row_other.head(work.batch, work.head), t.row_other.row_stride, first_row,
                                         seq, dim);
  if (steps > 0) fetch(0);

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kTiles;
  const int row = first_row + warp_row;  // the first of this warp
  RowStatistics<kTiles> of_rows;         // where rows are queries
  if constexpr (!kRowsAreKeys) of_rows.load(t, n, work, row);
  float out[kTiles][D / 8][4] = {};
  float other[kTiles][D / 8][4] = {};  // where rows are keys
  uint32_t left[Shape::kHeld ? D / 16 : 1][kTiles][4], other_left[Shape::kHeld ? D / 16 : 1][kTiles][4];
  bool load = true;
  using Seen = Limits<kRowsAreKeys, kDocuments, kTiles>;
  Seen limits;
  limits.load(t, n, work.batch, row);
  // Of this warp's first and last row.
  const int first_limit = kDocuments ? Seen::limit(t, n, work.batch, row) : 0;
  const int last_limit = kDocuments ? Seen::limit(t, n, work.batch, row + 16 * kTiles - 1) : 0;

  for (int step = 0; step < steps; ++step) {
    wait_for_copies();
    __syncthreads();  // what this step reads is there, and what it fetches over is no longer read
    if (step + 1 < steps) fetch(step + 1);
    const int column = begin + step % steps_per_head * N;
    // No query of these rows and columns sees a key.
    if (n.causal && (kRowsAreKeys ? column + N - 1 < row : column > row + 16 * kTiles - 1)) continue;
    if (kDocuments && (kRowsAreKeys ? column >= last_limit : column + N <= first_limit)) continue;
    const MmaTile<D> columns{shared + stage(step)}, other_columns{shared + stage(step) + kColumnBytes};
    const float* column_lse2 = reinterpret_cast<const float*>(memory + stage(step) + 2 * kColumnBytes);

    float p[kTiles][N / 8][4], ds[kTiles][N / 8][4];
    products<T>(p, rows, columns, left, load, warp_row);
    products<T>(ds, other_rows, other_columns, other_left, load, warp_row);
    load = false;
    // In a branch of its own, since most steps have nothing to mask.
    const bool hides = kDocuments && (kRowsAreKeys ? column + N > first_limit : column < last_limit);
    if (column + N > seq || (n.causal && (kRowsAreKeys ? column < row + 16 * kTiles - 1 : column + N - 1 > row)) ||
        hides) {
      mask(p, n, limits, row, column);
    }
    score_gradients<kRowsAreKeys>(p, ds, of_rows, column_lse2, column_lse2 + N, n.scale * kLog2E);
    if constexpr (kRowsAreKeys) add_products<T>(other, p, other_columns);
    add_products<T>(out, ds, columns);
  }
  wait_for_copies();

#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    write_rows<T, D>(t.out.head(work.batch, work.head), t.out.row_stride, row + 16 * m, seq, dim, out[m], n.scale,
                     n.scale);
    if constexpr (kRowsAreKeys) {
      write_rows<T, D>(t.other.head(work.batch, work.head), t.other.row_stride, row + 16 * m, seq, dim, other[m], 1.0f,
                       1.0f);
    }
  }
}

template <class T, int D, bool kRowsAreKeys, bool kDocuments>
void launch_pass(const Context& ctx, const AttentionSizes& n, const BackwardTensors<T>& tensors) {
  using Shape = BackwardShape<D, kRowsAreKeys>;
  const AttentionGrid all{.batches = n.batch,
                          .heads = kRowsAreKeys ? n.kv_heads : n.heads,
                          .row_blocks = divide_up(n.seq, Shape::kRows),
                          .panels = 1,
                          .last_first = !kRowsAreKeys};
  const auto kernel = attention_backward_mma_kernel<T, D, kRowsAreKeys, kDocuments>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kShared),
        "attention_backward");
  launch_blocks(all, [&](const AttentionGrid& grid, unsigned count) {
    kernel<<<count, kThreads, Shape::kShared, stream_of(ctx)>>>(tensors, n, grid);
  });
  check_launch("attention_backward");
}

template <class T, int D, bool kDocuments>
void launch(const Context& ctx, const ops::AttentionBackward& args, const AttentionStatistics& statistics) {
  const AttentionSizes n = attention_sizes(args);
  const Heads<const T> q = heads_of<const T>(args.q), k = heads_of<const T>(args.k), v = heads_of<const T>(args.v),
                       dout = heads_of<const T>(args.dout);
  const int64_t pitch = attention_pitch(n.seq);
  launch_pass<T, D, true, kDocuments>(ctx, n,
                                      {.row = k,
                                       .row_other = v,
                                       .column = q,
                                       .column_other = dout,
                                       .out = heads_of<T>(args.dk),
                                       .other = heads_of<T>(args.dv),
                                       .lse2 = statistics.lse2,
                                       .delta = statistics.delta,
                                       .ends = statistics.ends,
                                       .pitch = pitch});
  launch_pass<T, D, false, kDocuments>(ctx, n,
                                       {.row = q,
                                        .row_other = dout,
                                        .column = k,
                                        .column_other = v,
                                        .out = heads_of<T>(args.dq),
                                        .other = {},
                                        .lse2 = statistics.lse2,
                                        .delta = statistics.delta,
                                        .ends = statistics.ends,
                                        .pitch = pitch});
}

}  // namespace

bool attention_backward_mma(const Context& ctx, const ops::AttentionBackward& args,
                            const AttentionStatistics& statistics) {
  if (!mma_fits(args)) return false;
  if (!rows_aligned(args.q, args.k, args.v, args.dout, args.dq, args.dk, args.dv)) return false;
  with_mma_width(args.q, [&](auto* type, auto width) {
    using T = std::remove_pointer_t<decltype(type)>;
    args.starts ? launch<T, width, true>(ctx, args, statistics) : launch<T, width, false>(ctx, args, statistics);
  });
  return true;
}

}  // namespace tigon::cuda
