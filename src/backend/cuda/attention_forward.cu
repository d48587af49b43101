// attention forward for every type and shape: 64 queries walk over the keys, 64 at a time, with a running maximum and
// sum (online softmax). A thread block forms 64 columns of o; for a longer D the scores are formed again for the
// next 64.
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/attention_plain.cuh"

namespace tigon::cuda {

namespace {

// Over the 16 threads that share rows.
template <class Combine>
__device__ __forceinline__ float across_row(float v, Combine combine) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) v = combine(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

template <class T>
__global__ void __launch_bounds__(kPlainThreads)
    attention_forward_kernel(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> o, float* lse,
                             AttentionSizes n, AttentionGrid grid) {
  __shared__ PlainTile a, b;
  const AttentionWork work = grid.work();
  const int64_t row = work.row_block * kPlainTile, panel = work.panel * kPlainTile, kv_head = work.head / n.group;
  const T* queries = q.head(work.batch, work.head);
  const T* keys = k.head(work.batch, kv_head);
  const T* values = v.head(work.batch, kv_head);

  float out[4][4] = {}, largest[4], sum[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) largest[i] = -INFINITY;
  const int64_t end = n.causal ? min(n.seq, row + kPlainTile) : n.seq;
  int first[4];  // keys that queries of this thread see
#pragma unroll
  for (int i = 0; i < 4; ++i) first[i] = n.first_key(work.batch, row + plain_ty() + 16 * i);
  for (int64_t key = n.first_key(work.batch, row) / kPlainTile * kPlainTile; key < end; key += kPlainTile) {
    float p[4][4];
    row_products(p, a, b, queries, q.row_stride, row, keys, k.row_stride, key, n.seq, n.dim);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t query = row + plain_ty() + 16 * i, visible = n.causal ? min(query + 1, n.seq) : n.seq;
      float top = largest[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t at = key + plain_tx() + 16 * j;
        p[i][j] = at >= first[i] && at < visible ? p[i][j] * n.scale : -INFINITY;
        top = fmaxf(top, p[i][j]);
      }
      top = across_row(top, Max());
      const float shift = top == -INFINITY ? 0.0f : top, shrink = expf(largest[i] - shift);
      largest[i] = top;
      sum[i] *= shrink;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        p[i][j] = expf(p[i][j] - shift);
        sum[i] += p[i][j];
        out[i][j] *= shrink;
      }
    }
    __syncthreads();
    put(a, p);
    stage(b, values, v.row_stride, key, n.seq, panel, n.dim);
    __syncthreads();
    add_product(out, a, b);
  }

#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[i] = across_row(sum[i], Sum());
#pragma unroll
    for (int j = 0; j < 4; ++j) out[i][j] /= sum[i];
    const int64_t query = row + plain_ty() + 16 * i;
    if (lse != nullptr && panel == 0 && plain_tx() == 0 && query < n.seq) {
      lse[(work.batch * n.heads + work.head) * n.seq + query] = largest[i] + logf(sum[i]);
    }
  }
  write_panel(o.head(work.batch, work.head), o.row_stride, row, n.seq, panel, n.dim, out);
}

}  // namespace

void attention_forward_plain(const Context& ctx, const ops::AttentionForward& args) {
  const AttentionSizes n = attention_sizes(args);
  float* lse = args.lse ? args.lse.as<float>() : nullptr;
  const AttentionGrid all{.batches = n.batch,
                          .heads = n.heads,
                          .row_blocks = divide_up(n.seq, kPlainTile),
                          .panels = divide_up(n.dim, kPlainTile),
                          .last_first = true};
  dispatch("attention_forward", args.q.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch_blocks(all, [&](const AttentionGrid& grid, unsigned count) {
      attention_forward_kernel<T>
          <<<count, kPlainThreads, 0, stream_of(ctx)>>>(heads_of<const T>(args.q), heads_of<const T>(args.k),
                                                        heads_of<const T>(args.v), heads_of<T>(args.o), lse, n, grid);
    });
  });
  check_launch("attention_forward");
}

}  // namespace tigon::cuda
