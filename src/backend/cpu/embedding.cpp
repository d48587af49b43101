// embedding: forward copies rows. Backward first groups the tokens by id, in order of position, so that each row of
// dweight is summed by one task and written once: no atomics, no order that threads could change.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/embedding.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/pieces-inl.hpp"
#include "backend/cpu/rows.hpp"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

template <class T, bool kStream>
void embedding_forward_rows(const ops::EmbeddingForward& args, int64_t begin, int64_t end) {
  const V scale = set(static_cast<float>(args.scale));
  for (int64_t i = begin; i < end; ++i) {
    const T* from = row<T>(args.weight, index_at(args.ids, i));
    T* y = row<T>(args.y, i);
    for_row(args.y.sizes[1],
            [&](int64_t j, auto part) HWY_ATTR { put<kStream>(hn::Mul(load(from + j, part), scale), y + j, part); });
  }
  if (kStream) hwy::FlushStream();
}

void EmbeddingForwardRows(const ops::EmbeddingForward& args, bool stream_out, int64_t begin, int64_t end) {
  with_type(args.y.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    if (stream_out) {
      embedding_forward_rows<T, true>(args, begin, end);
    } else {
      embedding_forward_rows<T, false>(args, begin, end);
    }
  });
}

template <class T, class Out, bool kStream>
void embedding_backward_rows(const ops::EmbeddingBackward& args, const int64_t* starts, const int64_t* order,
                             int64_t begin, int64_t end, int64_t first, int64_t n) {
  HWY_ALIGN float sums[kPiece];
  const V scale = set(static_cast<float>(args.scale));
  for (int64_t id = begin; id < end; ++id) {
    Out* out = row<Out>(args.dweight, id) + first;
    if (starts[id] == starts[id + 1]) {
      if (args.accumulate_dweight) continue;
      for_row(n, [&](int64_t j, auto part) HWY_ATTR { put<kStream>(zero(), out + j, part); });
      continue;
    }
    std::fill_n(sums, n, 0.0f);
    for (int64_t i = starts[id]; i < starts[id + 1]; ++i) {
      const T* dy = row<T>(args.dy, order[i]) + first;
      for_row(n, [&](int64_t j, auto part)
                     HWY_ATTR { store(hn::Add(load(sums + j, part), load(dy + j, part)), sums + j, part); });
    }
    for_row(n, [&](int64_t j, auto part) HWY_ATTR {
      V sum = hn::Mul(load(sums + j, part), scale);
      if (args.accumulate_dweight) sum = hn::Add(sum, load(out + j, part));
      put<kStream>(sum, out + j, part);
    });
  }
  if (kStream) hwy::FlushStream();
}

// Rows [begin, end) of dweight, columns [first, first + n).
void EmbeddingBackwardRows(const ops::EmbeddingBackward& args, const int64_t* starts, const int64_t* order,
                           bool stream_out, int64_t begin, int64_t end, int64_t first, int64_t n) {
  with_type(args.dy.dtype, [&](auto* type) HWY_ATTR {
    with_type(args.dweight.dtype, [&](auto* out_type) HWY_ATTR {
      using T = std::remove_pointer_t<decltype(type)>;
      using Out = std::remove_pointer_t<decltype(out_type)>;
      if constexpr (std::is_same_v<Out, float> || std::is_same_v<Out, T>) {
        if (stream_out) {
          embedding_backward_rows<T, Out, true>(args, starts, order, begin, end, first, n);
        } else {
          embedding_backward_rows<T, Out, false>(args, starts, order, begin, end, first, n);
        }
      }
    });
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(EmbeddingForwardRows);
HWY_EXPORT(EmbeddingBackwardRows);

namespace {

// A counting sort: the tokens of id stand in order[starts[id] … starts[id + 1]), by rising position.
void group_by_id(const Tensor& ids, int64_t vocab, int64_t* starts, int64_t* order) {
  const int64_t tokens = ids.sizes[0];
  std::fill_n(starts, vocab + 1, int64_t{0});
  for (int64_t i = 0; i < tokens; ++i) ++starts[index_at(ids, i)];
  // Ends first; filling from the back turns them into starts.
  for (int64_t id = 0, sum = 0; id <= vocab; ++id) starts[id] = sum += starts[id];
  for (int64_t i = tokens - 1; i >= 0; --i) order[--starts[index_at(ids, i)]] = i;
}

}  // namespace

void embedding_forward(const Context& ctx, const ops::EmbeddingForward& args) {
  if (ctx.measuring()) return;
  const int64_t tokens = args.y.sizes[0], hidden = args.y.sizes[1];
  const Blocks blocks = row_blocks(tokens, hidden * size_of(args.y.dtype));
  const bool stream_out = streams(args.y);
  const auto run = HWY_DYNAMIC_DISPATCH(EmbeddingForwardRows);
  parallel_tasks(ctx, blocks.count,
                 [&](int64_t block) { run(args, stream_out, blocks.begin(block), blocks.end(block)); });
}

void embedding_backward(const Context& ctx, const ops::EmbeddingBackward& args) {
  const int64_t tokens = args.dy.sizes[0], vocab = args.dweight.sizes[0], hidden = args.dweight.sizes[1];
  const Buffer starts = ctx.scratch("embedding_starts", (vocab + 1) * 8);
  const Buffer order = ctx.scratch("embedding_order", tokens * 8);
  if (ctx.measuring()) return;
  group_by_id(args.ids, vocab, starts.as<int64_t>(), order.as<int64_t>());
  // Columns are cut as well, so that a batch full of one token still keeps every thread busy.
  constexpr int64_t kColumns = 1024;
  const int64_t pieces = (hidden + kColumns - 1) / kColumns;
  const Blocks rows = row_blocks(vocab, std::min(hidden, kColumns) * 4);
  const bool stream_out = streams(args.dweight) && !args.accumulate_dweight;
  const auto run = HWY_DYNAMIC_DISPATCH(EmbeddingBackwardRows);
  parallel_tasks(ctx, rows.count * pieces, [&](int64_t task) {
    const int64_t block = task / pieces, first = task % pieces * kColumns;
    run(args, starts.as<int64_t>(), order.as<int64_t>(), stream_out, rows.begin(block), rows.end(block), first,
        std::min(kColumns, hidden - first));
  });
}

}  // namespace tigon::cpu
#endif
