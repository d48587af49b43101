#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backend/cuda/exponential.cuh"
#include "backend/cuda/launch.cuh"
#include "tigon/core/half.hpp"
#include "tigon/ops/attention.hpp"

// What all attention kernels of ours share: how they see the tensors, and who works on what.
namespace tigon::cuda {

// One of q, k, v, o and their gradients: [batch, seq, heads, D] with D contiguous.
template <class T>
struct Heads {
  T* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;

  // Row 0 of a head; rows are row_stride apart.
  __device__ __forceinline__ T* head(int64_t batch, int64_t head) const {
    return data + batch * batch_stride + head * head_stride;
  }
};
template <class T>
Heads<T> heads_of(const Tensor& t) {
  return {t.as<T>(), t.strides[0], t.strides[1], t.strides[2]};
}

struct AttentionSizes {
  int64_t batch, seq, heads, kv_heads, group, dim;
  float scale;
  bool causal;
  const int32_t* starts;  // [batch, seq]: the first key that each query sees; null where every row is one document

  // Of a query, or of the last one where there are fewer.
  __device__ __forceinline__ int first_key(int64_t of_batch, int64_t query) const {
    return starts == nullptr ? 0 : starts[of_batch * seq + min(query, seq - 1)];
  }
};
template <class Args>
AttentionSizes attention_sizes(const Args& args) {
  const Tensor& q = args.q;
  const double scale = args.scale != 0 ? args.scale : 1.0 / std::sqrt(static_cast<double>(q.sizes[3]));
  return {.batch = q.sizes[0],
          .seq = q.sizes[1],
          .heads = q.sizes[2],
          .kv_heads = args.k.sizes[2],
          .group = q.sizes[2] / args.k.sizes[2],
          .dim = q.sizes[3],
          .scale = static_cast<float>(scale),
          .causal = args.causal,
          .starts = args.starts ? args.starts.template as<int32_t>() : nullptr};
}

// Whether the kernels on tensor cores take such a call, and the call of f(null pointer to the type, width) with the
// number of columns they are built for: 64, 96 or 128; columns beyond D are zeros.
template <class Args>
bool mma_fits(const Args& args) {
  const Tensor& q = args.q;
  // A row's number is an int there; more rows than that could not be attended to in a lifetime. And what is masked is
  // an infinite score, which a scale of 0 would not keep.
  return (q.dtype == DType::bf16 || q.dtype == DType::f16) && q.sizes[3] % 8 == 0 && q.sizes[3] <= 128 &&
         q.sizes[1] < INT32_MAX / 2 && std::isnormal(attention_sizes(args).scale);
}
template <class F>
void with_mma_width(const Tensor& q, const F& f) {
  const auto with_type = [&](auto* type) {
    if (q.sizes[3] <= 64) {
      f(type, std::integral_constant<int, 64>());
    } else if (q.sizes[3] <= 96) {
      f(type, std::integral_constant<int, 96>());
    } else {
      f(type, std::integral_constant<int, 128>());
    }
  };
  if (q.dtype == DType::bf16) return with_type(static_cast<bf16*>(nullptr));
  with_type(static_cast<f16*>(nullptr));
}

// The part of the work that one thread block does: a block of rows of one head, and a panel of columns of the result.
struct AttentionWork {
  int64_t batch, head, row_block, panel;
};

// How the work is dealt out. Heads are innermost, so that those which share keys run together; the blocks with most to
// do come first, so that no long one is left over at the end. So it goes for some heads, then for the next: what they
// read again and again, and add to, stays in the cache.
struct AttentionGrid {
  int64_t batches, heads, row_blocks, panels;
  bool last_first;  // rows are queries, the last of which see most keys; else keys, the first of which are seen most
  int64_t together = 0;  // heads, of whatever batch; 0: all
  int64_t first = 0;     // thread blocks in launches before this one

  int64_t blocks() const { return batches * heads * row_blocks * panels; }

  __device__ __forceinline__ AttentionWork work() const { return work(first + blockIdx.x); }
  __device__ __forceinline__ AttentionWork work(int64_t index) const {
    const int64_t all = batches * heads, most = together > 0 ? together : all;
    const int64_t begin = index / (most * panels * row_blocks) * most, count = min(most, all - begin);
    index -= begin * panels * row_blocks;
    AttentionWork mine;
    const int64_t head = begin + index % count;
    mine.head = head % heads;
    mine.batch = head / heads;
    index /= count;
    mine.panel = index % panels;
    index /= panels;
    mine.row_block = last_first ? row_blocks - 1 - index : index;
    return mine;
  }
};

// As many heads as keep every multiprocessor busy twice over, so that none waits for the longest blocks of a head: the
// fewer, the more of what they share stays in the cache.
inline int64_t heads_together(int64_t row_blocks, int multiprocessors) {
  return std::max<int64_t>(1, 2 * int64_t{multiprocessors} / row_blocks);
}

// Calls launch(grid, thread blocks) until all are launched: once, unless there are 2^31 of them.
template <class Launch>
void launch_blocks(AttentionGrid grid, const Launch& launch) {
  for (const int64_t blocks = grid.blocks(); grid.first < blocks; grid.first += INT32_MAX) {
    launch(grid, grid_size(blocks - grid.first));
  }
}

}  // namespace tigon::cuda
