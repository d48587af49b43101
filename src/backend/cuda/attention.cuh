#pragma once

#include <cmath>

#include "backend/cuda/launch.cuh"
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
          .causal = args.causal};
}

// The part of the work that one thread block does: a block of rows of one head, and a panel of columns of the result.
struct AttentionWork {
  int64_t batch, head, row_block, panel;
};

// How the work is dealt out. Heads are innermost, so that those which share keys run together; the blocks with most to
// do come first, so that no long one is left over at the end.
struct AttentionGrid {
  int64_t batches, heads, row_blocks, panels;
  bool last_first;    // rows are queries, the last of which see most keys; else keys, the first of which are seen most
  int64_t first = 0;  // thread blocks in launches before this one

  int64_t blocks() const { return batches * heads * row_blocks * panels; }

  __device__ __forceinline__ AttentionWork work() const {
    int64_t index = first + blockIdx.x;
    AttentionWork mine;
    mine.head = index % heads;
    index /= heads;
    mine.batch = index % batches;
    index /= batches;
    mine.panel = index % panels;
    index /= panels;
    mine.row_block = last_first ? row_blocks - 1 - index : index;
    return mine;
  }
};

// Calls launch(grid, thread blocks) until all are launched: once, unless there are 2^31 of them.
template <class Launch>
void launch_blocks(AttentionGrid grid, const Launch& launch) {
  for (const int64_t blocks = grid.blocks(); grid.first < blocks; grid.first += INT32_MAX) {
    launch(grid, grid_size(blocks - grid.first));
  }
}

}  // namespace tigon::cuda
