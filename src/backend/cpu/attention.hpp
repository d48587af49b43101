#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tigon/core/context.hpp"

namespace tigon::cpu {

// How an attention problem is cut. The query heads that share a key-value head are worked on together: their blocks of
// queries stand below one another as the rows of one matrix, so keys and values are read once for all of them and the
// GEMMs are tall. Everything follows from the shape, nothing from the number of threads.
struct AttentionShape {
  int64_t batch, seq, heads, kv_heads, group, dim;
  int64_t block_queries;  // queries of one head in a block
  int64_t block_rows;     // group·block_queries: rows of the block's matrices
  int64_t block_keys;
  int64_t score_stride;  // block_keys rounded up to whole vectors
  float scale;

  AttentionShape(const Tensor& q, const Tensor& k, double given_scale)
      : batch(q.sizes[0]),
        seq(q.sizes[1]),
        heads(q.sizes[2]),
        kv_heads(k.sizes[2]),
        group(heads / kv_heads),
        dim(q.sizes[3]),
        block_queries(std::min(seq, std::clamp<int64_t>(256 / std::max<int64_t>(1, group), 16, 128))),
        block_rows(group * block_queries),
        block_keys(std::min<int64_t>(seq, 128)),
        score_stride((block_keys + 63) / 64 * 64),
        scale(static_cast<float>(given_scale != 0 ? given_scale : 1.0 / std::sqrt(static_cast<double>(dim)))) {}

  int64_t query_blocks() const { return seq == 0 ? 0 : (seq + block_queries - 1) / block_queries; }
};

// One block of queries against the keys: where it is, and what it sees.
struct QueryBlock {
  int64_t batch, kv_head, first, count;  // queries [first, first + count) of the heads of kv_head
  int64_t first_key = 0, keys;           // keys [first_key, keys) are seen by at least one of them
  const int32_t* starts = nullptr;       // for each query of the row the first key that it sees; null: the first of all

  QueryBlock(const AttentionShape& shape, bool causal, const Tensor& all_starts, int64_t batch_index,
             int64_t kv_head_index, int64_t block)
      : batch(batch_index),
        kv_head(kv_head_index),
        first(block * shape.block_queries),
        count(std::min(shape.block_queries, shape.seq - first)),
        keys(causal ? first + count : shape.seq) {
    if (!all_starts) return;
    starts = all_starts.as<int32_t>() + batch * shape.seq;
    first_key = starts[first];  // they never fall
  }
};

// Hands out f32 arrays, each on a 64-byte boundary, from one thread's part of the scratch; with null memory it only
// counts.
class FloatStack {
 public:
  explicit FloatStack(float* memory) : memory_(memory) {}
  float* take(int64_t count) {
    float* const taken = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count + 15) / 16 * 16;
    return taken;
  }
  int64_t used() const { return used_; }

 private:
  float* memory_;
  int64_t used_ = 0;
};

}  // namespace tigon::cpu
