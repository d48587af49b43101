// attention backward for every type and shape, in two passes that form the scores again: one over blocks of keys gives
// dk and dv, one over blocks of queries gives dq. So each sum has one owner and one order, and no atomics are needed.
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/attention_plain.cuh"

namespace tigon::cuda {

namespace {

// What a pass reads. Rows stay, columns are walked over: with keys as rows, row = k, row_other = v, column = q,
// column_other = dout; with queries as rows, the reverse.
template <class T>
struct BackwardPass {
  Heads<const T> row, row_other, column, column_other;
  const float* lse;     // [batch, heads, seq]
  const float* delta;   // [batch, heads, pitch]
  const int32_t* ends;  // [batch, pitch], or null
  int64_t pitch;
};

// With p = softmax and ds = p·(dout·v − delta): sums p·column_other into `other` (dv, keys as rows only) and
// ds·column·scale into `out` (dk or dq), for the 64 columns of a panel.
template <class T, bool kRowsAreKeys>
__global__ void __launch_bounds__(kPlainThreads)
    attention_backward_kernel(BackwardPass<T> pass, Heads<T> out, Heads<T> other, AttentionSizes n,
                              AttentionGrid grid) {
  __shared__ PlainTile a, b;
  const AttentionWork work = grid.work();
  const int64_t row = work.row_block * kPlainTile, panel = work.panel * kPlainTile;
  int64_t begin = n.causal && kRowsAreKeys ? row : 0;
  int64_t end = n.causal && !kRowsAreKeys ? min(n.seq, row + kPlainTile) : n.seq;
  if (n.starts != nullptr && kRowsAreKeys) end = pass.ends[work.batch * pass.pitch + min(n.seq, row + kPlainTile) - 1];
  if (!kRowsAreKeys) begin = n.first_key(work.batch, row) / kPlainTile * kPlainTile;
  const T* rows = pass.row.head(work.batch, work.head);
  const T* other_rows = pass.row_other.head(work.batch, work.head);

  float sum[4][4] = {}, other_sum[4][4] = {};
  for (int64_t member = 0; member < (kRowsAreKeys ? n.group : 1); ++member) {
    const int64_t q_head = kRowsAreKeys ? work.head * n.group + member : work.head;
    const int64_t column_head = kRowsAreKeys ? q_head : work.head / n.group;
    const float* lse = pass.lse + (work.batch * n.heads + q_head) * n.seq;
    const float* delta = pass.delta + (work.batch * n.heads + q_head) * pass.pitch;
    const T* columns = pass.column.head(work.batch, column_head);
    const T* other_columns = pass.column_other.head(work.batch, column_head);
    for (int64_t column = begin; column < end; column += kPlainTile) {
      float p[4][4], ds[4][4];
      row_products(p, a, b, rows, pass.row.row_stride, row, columns, pass.column.row_stride, column, n.seq, n.dim);
      row_products(ds, a, b, other_rows, pass.row_other.row_stride, row, other_columns, pass.column_other.row_stride,
                   column, n.seq, n.dim);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int64_t r = row + plain_ty() + 16 * i, c = column + plain_tx() + 16 * j;
          const int64_t query = kRowsAreKeys ? c : r, key = kRowsAreKeys ? r : c;
          const bool visible =
              query < n.seq && key < n.seq && (!n.causal || key <= query) && key >= n.first_key(work.batch, query);
          p[i][j] = visible ? expf(p[i][j] * n.scale - lse[query]) : 0.0f;
          ds[i][j] = visible ? p[i][j] * (ds[i][j] - delta[query]) : 0.0f;
        }
      }
      if constexpr (kRowsAreKeys) {
        __syncthreads();
        put(a, p);
        stage(b, other_columns, pass.column_other.row_stride, column, n.seq, panel, n.dim);
        __syncthreads();
        add_product(other_sum, a, b);
      }
      __syncthreads();
      put(a, ds);
      stage(b, columns, pass.column.row_stride, column, n.seq, panel, n.dim);
      __syncthreads();
      add_product(sum, a, b);
    }
  }

#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[i][j] *= n.scale;
  }
  write_panel(out.head(work.batch, work.head), out.row_stride, row, n.seq, panel, n.dim, sum);
  if constexpr (kRowsAreKeys) {
    write_panel(other.head(work.batch, work.head), other.row_stride, row, n.seq, panel, n.dim, other_sum);
  }
}

}  // namespace

void attention_backward_plain(const Context& ctx, const ops::AttentionBackward& args,
                              const AttentionStatistics& statistics) {
  const AttentionSizes n = attention_sizes(args);
  AttentionGrid all{.batches = n.batch,
                    .heads = n.kv_heads,
                    .row_blocks = divide_up(n.seq, kPlainTile),
                    .panels = divide_up(n.dim, kPlainTile),
                    .last_first = false};
  dispatch("attention_backward", args.q.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Heads<const T> q = heads_of<const T>(args.q), k = heads_of<const T>(args.k), v = heads_of<const T>(args.v),
                         dout = heads_of<const T>(args.dout);
    const float* lse = args.lse.as<float>();
    const int64_t pitch = attention_pitch(n.seq);
    launch_blocks(all, [&](const AttentionGrid& grid, unsigned count) {
      const BackwardPass<T> pass{.row = k,
                                 .row_other = v,
                                 .column = q,
                                 .column_other = dout,
                                 .lse = lse,
                                 .delta = statistics.delta,
                                 .ends = statistics.ends,
                                 .pitch = pitch};
      attention_backward_kernel<T, true>
          <<<count, kPlainThreads, 0, stream_of(ctx)>>>(pass, heads_of<T>(args.dk), heads_of<T>(args.dv), n, grid);
    });
    all.heads = n.heads;
    all.last_first = true;
    launch_blocks(all, [&](const AttentionGrid& grid, unsigned count) {
      const BackwardPass<T> pass{.row = q,
                                 .row_other = dout,
                                 .column = k,
                                 .column_other = v,
                                 .lse = lse,
                                 .delta = statistics.delta,
                                 .ends = statistics.ends,
                                 .pitch = pitch};
      attention_backward_kernel<T, false>
          <<<count, kPlainThreads, 0, stream_of(ctx)>>>(pass, heads_of<T>(args.dq), Heads<T>{}, n, grid);
    });
  });
  check_launch("attention_backward");
}

}  // namespace tigon::cuda
