#pragma once

#include "tigon/ops/rope.hpp"

// How the many shapes that rope takes come down to one: rank 4, and one row of angles per token.
namespace tigon {

// [tokens, heads, D] seen as [1, heads, tokens, D]; rank 4 is that already.
inline Tensor rope_batched(const Tensor& t) {
  if (!t.present() || t.rank == 4) return t;
  Tensor batched = t.transpose(0, 1);
  for (int d = 3; d > 0; --d) batched.sizes[d] = batched.sizes[d - 1], batched.strides[d] = batched.strides[d - 1];
  batched.sizes[0] = 1, batched.strides[0] = 0;
  batched.rank = 4;
  return batched;
}

inline int64_t rope_rotary_dim(const ops::Rope& args) {
  return args.rotary_dim == 0 ? args.q.sizes[args.q.rank - 1] : args.rotary_dim;
}

// Which angles a token takes. Entries are the distinct ones: one per sequence position, or one per batch and position.
struct RopeAngles {
  explicit RopeAngles(const ops::Rope& args) : positions(args.positions), from_tables(args.cos.present()) {
    const Tensor q = rope_batched(args.q);
    seq = q.sizes[2];
    if (positions) {
      by_batch = positions.rank == 2;
    } else {
      by_batch = from_tables && args.cos.sizes[0] != seq;
    }
    entries = by_batch ? q.sizes[0] * seq : seq;
  }

  int64_t entry(int64_t batch, int64_t token) const { return by_batch ? batch * seq + token : token; }
  int64_t position(int64_t entry) const {
    if (!positions) return entry;
    return positions.dtype == DType::i32 ? positions.as<int32_t>()[entry] : positions.as<int64_t>()[entry];
  }
  // The row of the table: the caller's, or one computed with a row per entry.
  int64_t row(int64_t batch, int64_t token) const {
    return from_tables ? position(entry(batch, token)) : entry(batch, token);
  }

  Tensor positions;  // contiguous where present
  bool from_tables = false;
  bool by_batch = false;
  int64_t seq = 0;
  int64_t entries = 0;
};

}  // namespace tigon
