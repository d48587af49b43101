// How embedding is cut into launches.
#include "backend/cuda/embedding.cuh"

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/row_launch.cuh"

namespace tigon::cuda {

namespace {

// The choices that were measured.
constexpr int kThreads = 256;
constexpr int kForwardRows = 4;   // per thread
constexpr int kBackwardIds = 16;  // per block

Ids ids_of(const Tensor& ids, int64_t vocab) { return {ids.data, ids.sizes[0], vocab, ids.dtype == DType::i64}; }

unsigned flat_blocks(int64_t n) { return static_cast<unsigned>(std::min(divide_up(n, kThreads), kMaxGridX)); }

template <class T, class Out>
void backward_rows(const Context& ctx, const ops::EmbeddingBackward& args, const unsigned* starts,
                   const unsigned* order) {
  const int64_t vocab = args.dweight.sizes[0], hidden = args.dweight.sizes[1];
  const auto dy = rows_of<const T>(args.dy);
  const auto dweight = rows_of<Out>(args.dweight);
  const auto scale = static_cast<float>(args.scale);
  const unsigned blocks = grid_size(divide_up(vocab, kBackwardIds));
  const bool vectors = hidden % kLanes<T> == 0 && rows_aligned(args.dy, args.dweight);
  const dim3 block = row_grid(vocab, vectors ? hidden / kLanes<T> : hidden, kThreads).block;
  if (vectors) {
    launch_early(ctx.device, args.dy.sizes[0] > 0, stream_of(ctx), blocks, block, 0,
                 embedding_backward_kernel<T, Out, kLanes<T>, kThreads, kBackwardIds>, starts, order, dy, dweight,
                 vocab, hidden, scale, args.accumulate_dweight);
  } else {
    launch_early(ctx.device, args.dy.sizes[0] > 0, stream_of(ctx), blocks, block, 0,
                 embedding_backward_kernel<T, Out, 1, kThreads, kBackwardIds>, starts, order, dy, dweight, vocab,
                 hidden, scale, args.accumulate_dweight);
  }
}

}  // namespace

void embedding_forward(const Context& ctx, const ops::EmbeddingForward& args) {
  if (ctx.measuring() || args.y.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const int64_t tokens = args.y.sizes[0], hidden = args.y.sizes[1];
  const Ids ids = ids_of(args.ids, args.weight.sizes[0]);
  const auto scale = static_cast<float>(args.scale);
  dispatch("embedding_forward", args.y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto weight = rows_of<const T>(args.weight);
    const auto y = rows_of<T>(args.y);
    if (hidden % kLanes<T> == 0 && rows_aligned(args.weight, args.y)) {
      const RowGrid shape = row_grid(divide_up(tokens, kForwardRows), hidden / kLanes<T>, kThreads);
      embedding_forward_kernel<T, kLanes<T>, kThreads, kForwardRows>
          <<<shape.grid, shape.block, 0, stream_of(ctx)>>>(ids, weight, y, hidden, scale);
    } else {
      const RowGrid shape = row_grid(divide_up(tokens, kForwardRows), hidden, kThreads);
      embedding_forward_kernel<T, 1, kThreads, kForwardRows>
          <<<shape.grid, shape.block, 0, stream_of(ctx)>>>(ids, weight, y, hidden, scale);
    }
  });
  check_launch("embedding_forward");
}

void embedding_backward(const Context& ctx, const ops::EmbeddingBackward& args) {
  constexpr const char* kWhere = "embedding_backward";
  const int64_t tokens = args.dy.sizes[0], vocab = args.dweight.sizes[0];
  // Zeroed together: the counts and the end of the last list, then the scan's ticket and sums.
  const int64_t pieces = divide_up(vocab + 1, kScanPiece), counts_bytes = round_up((vocab + 1) * 4, 16);
  const int64_t zeroed_bytes = counts_bytes + 8 + pieces * 8;
  const Buffer starts_buffer = ctx.scratch("embedding_starts", zeroed_bytes);
  const Buffer lists_buffer = ctx.scratch("embedding_lists", tokens * 4);
  const Buffer order_buffer = ctx.scratch("embedding_order", tokens * 4);
  if (ctx.measuring() || args.dweight.elements() == 0) return;
  if (tokens > INT32_MAX) throw Error(ErrorCode::unsupported, {.where = kWhere, .what = "too many tokens for a GPU"});
  const DeviceGuard guard(ctx);
  const cudaStream_t stream = stream_of(ctx);
  const Ids ids = ids_of(args.ids, vocab);
  auto* starts = starts_buffer.as<unsigned>();
  auto* ticket = starts + counts_bytes / 4;
  auto* sums = starts_buffer.as<unsigned long long>() + (counts_bytes + 8) / 8;
  auto* lists = lists_buffer.as<unsigned>();
  auto* order = order_buffer.as<unsigned>();  // holds the places until the lists stand
  check(cudaMemsetAsync(starts, 0, static_cast<size_t>(zeroed_bytes), stream), kWhere);
  if (tokens > 0) {
    const unsigned blocks = flat_blocks(tokens);
    count_kernel<kThreads><<<blocks, kThreads, 0, stream>>>(ids, starts, order);
    check_launch(kWhere);
    launch_early(ctx.device, true, stream, grid_size(pieces), kScanThreads, 0, scan_kernel<>, starts, vocab + 1, sums,
                 ticket);
    launch_early(ctx.device, true, stream, blocks, kThreads, 0, fill_kernel<kThreads>, ids, starts, order, lists);
    launch_early(ctx.device, true, stream, blocks, kThreads, 0, order_kernel<kThreads>, ids, starts, lists, order);
  }
  dispatch(kWhere, args.dy.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (args.dweight.dtype == DType::f32) {
      backward_rows<T, float>(ctx, args, starts, order);
    } else {
      backward_rows<T, T>(ctx, args, starts, order);
    }
  });
  check_launch(kWhere);
}

}  // namespace tigon::cuda
