// embedding: forward copies rows. Backward groups the tokens by id: counters say where each id's list begins, and a
// token's place in it is the number of earlier tokens in the same list. Counts do not depend on the order in which
// threads come, so lists always stand by rising position, and each row of dweight is summed in that order and written
// once.
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kScanThreads = 1024;

struct Ids {
  const void* data;
  int64_t count;
  int64_t vocab;
  bool wide;  // i64

  // −1 for an id outside the table: the host could not look.
  __device__ __forceinline__ int64_t at(int64_t i) const {
    const int64_t id = wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
    return id >= 0 && id < vocab ? id : -1;
  }
};

Ids ids_of(const Tensor& ids, int64_t vocab) { return {ids.data, ids.sizes[0], vocab, ids.dtype == DType::i64}; }

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    embedding_forward_kernel(Ids ids, Rows<const T> weight, Rows<T> y, int64_t hidden, float scale) {
  const int64_t row_step = int64_t{gridDim.x} * blockDim.y, step = int64_t{gridDim.y} * blockDim.x * W;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; i < ids.count; i += row_step) {
    const int64_t id = ids.at(i);
    for (int64_t j = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W; j < hidden; j += step) {
      float v[W];
      if (id >= 0) {
        load<W>(weight.at(id) + j, v);
#pragma unroll
        for (int k = 0; k < W; ++k) v[k] *= scale;
      } else {
#pragma unroll
        for (int k = 0; k < W; ++k) v[k] = __int_as_float(0x7fc00000);
      }
      store<W>(y.at(i) + j, v);
    }
  }
}

// places[i]: the how-manieth token of its id came, in no particular order.
__global__ void __launch_bounds__(kThreads) count_kernel(Ids ids, unsigned long long* counts, int64_t* places) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < ids.count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t id = ids.at(i);
    if (id >= 0) places[i] = static_cast<int64_t>(atomicAdd(counts + id, 1ull));
  }
}

// One block: counts become the sum of all counts before; n is vocab + 1, so that the last entry is the end.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(int64_t* counts, int64_t n) {
  __shared__ int64_t sums[32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t before = 0;
  for (int64_t begin = 0; begin < n; begin += kScanThreads) {
    const int64_t i = begin + threadIdx.x;
    const int64_t mine = i < n ? counts[i] : 0;
    int64_t inside = mine;  // including this thread, within the warp
    for (unsigned offset = 1; offset < 32; offset *= 2) {
      const int64_t other = __shfl_up_sync(0xffffffffu, inside, offset);
      if (lane >= offset) inside += other;
    }
    if (lane == 31) sums[warp] = inside;
    __syncthreads();
    int64_t earlier = 0, total = 0;
    for (unsigned w = 0; w < kScanThreads / 32; ++w) {
      if (w < warp) earlier += sums[w];
      total += sums[w];
    }
    if (i < n) counts[i] = before + earlier + inside - mine;
    before += total;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    fill_kernel(Ids ids, const int64_t* starts, const int64_t* places, int64_t* lists) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < ids.count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t id = ids.at(i);
    if (id >= 0) lists[starts[id] + places[i]] = i;
  }
}

// The lists by rising position.
__global__ void __launch_bounds__(kThreads)
    order_kernel(Ids ids, const int64_t* starts, const int64_t* __restrict__ lists, int64_t* __restrict__ order) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < ids.count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t id = ids.at(i);
    if (id < 0) continue;
    const int64_t begin = starts[id], end = starts[id + 1];
    int64_t earlier = 0;
#pragma unroll 8
    for (int64_t k = begin; k < end; ++k) earlier += lists[k] < i ? 1 : 0;
    order[begin + earlier] = i;
  }
}

template <class T, class Out, int W>
__global__ void __launch_bounds__(kThreads)
    embedding_backward_kernel(const int64_t* __restrict__ starts, const int64_t* __restrict__ order, Rows<const T> dy,
                              Rows<Out> dweight, int64_t vocab, int64_t hidden, float scale, bool accumulate) {
  const int64_t row_step = int64_t{gridDim.x} * blockDim.y, step = int64_t{gridDim.y} * blockDim.x * W;
  for (int64_t id = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; id < vocab; id += row_step) {
    const int64_t begin = starts[id], end = starts[id + 1];
    if (begin == end && accumulate) continue;
    for (int64_t j = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W; j < hidden; j += step) {
      float sum[W] = {};
#pragma unroll 4
      for (int64_t k = begin; k < end; ++k) {
        float v[W];
        load<W>(dy.at(order[k]) + j, v);
#pragma unroll
        for (int e = 0; e < W; ++e) sum[e] += v[e];
      }
      Out* out = dweight.at(id) + j;
#pragma unroll
      for (int e = 0; e < W; ++e) {
        sum[e] = __fmul_rn(sum[e], scale);
        if (accumulate) sum[e] += load_one(out + e);
      }
      if constexpr (W * sizeof(Out) > 16) {  // f32 gradients of 16-bit activations
        const float low[4] = {sum[0], sum[1], sum[2], sum[3]}, high[4] = {sum[4], sum[5], sum[6], sum[7]};
        store<4>(out, low);
        store<4>(out + 4, high);
      } else {
        store<W>(out, sum);
      }
    }
  }
}

unsigned flat_blocks(int64_t n) { return static_cast<unsigned>(std::min(divide_up(n, kThreads), kMaxGridX)); }

template <class T, class Out>
void backward_rows(const Context& ctx, const ops::EmbeddingBackward& args, const int64_t* starts,
                   const int64_t* order) {
  const int64_t vocab = args.dweight.sizes[0], hidden = args.dweight.sizes[1];
  const auto dy = rows_of<const T>(args.dy);
  const auto dweight = rows_of<Out>(args.dweight);
  const auto scale = static_cast<float>(args.scale);
  if (hidden % kLanes<T> == 0 && rows_aligned(args.dy, args.dweight)) {
    const RowGrid shape = row_grid(vocab, hidden / kLanes<T>, kThreads);
    embedding_backward_kernel<T, Out, kLanes<T>><<<shape.grid, shape.block, 0, stream_of(ctx)>>>(
        starts, order, dy, dweight, vocab, hidden, scale, args.accumulate_dweight);
  } else {
    const RowGrid shape = row_grid(vocab, hidden, kThreads);
    embedding_backward_kernel<T, Out, 1><<<shape.grid, shape.block, 0, stream_of(ctx)>>>(
        starts, order, dy, dweight, vocab, hidden, scale, args.accumulate_dweight);
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
      const RowGrid shape = row_grid(tokens, hidden / kLanes<T>, kThreads);
      embedding_forward_kernel<T, kLanes<T>>
          <<<shape.grid, shape.block, 0, stream_of(ctx)>>>(ids, weight, y, hidden, scale);
    } else {
      const RowGrid shape = row_grid(tokens, hidden, kThreads);
      embedding_forward_kernel<T, 1><<<shape.grid, shape.block, 0, stream_of(ctx)>>>(ids, weight, y, hidden, scale);
    }
  });
  check_launch("embedding_forward");
}

void embedding_backward(const Context& ctx, const ops::EmbeddingBackward& args) {
  constexpr const char* kWhere = "embedding_backward";
  const int64_t tokens = args.dy.sizes[0], vocab = args.dweight.sizes[0];
  const Buffer starts_buffer = ctx.scratch("embedding_starts", (vocab + 1) * 8);
  const Buffer lists_buffer = ctx.scratch("embedding_lists", tokens * 8);
  const Buffer order_buffer = ctx.scratch("embedding_order", tokens * 8);
  if (ctx.measuring() || args.dweight.elements() == 0) return;
  const DeviceGuard guard(ctx);
  const cudaStream_t stream = stream_of(ctx);
  const Ids ids = ids_of(args.ids, vocab);
  auto* starts = starts_buffer.as<int64_t>();
  auto* lists = lists_buffer.as<int64_t>();
  auto* order = order_buffer.as<int64_t>();  // holds the places until the lists stand
  check(cudaMemsetAsync(starts, 0, static_cast<size_t>(vocab + 1) * 8, stream), kWhere);
  if (tokens > 0) {
    count_kernel<<<flat_blocks(tokens), kThreads, 0, stream>>>(ids, reinterpret_cast<unsigned long long*>(starts),
                                                               order);
    check_launch(kWhere);
    scan_kernel<<<1, kScanThreads, 0, stream>>>(starts, vocab + 1);
    check_launch(kWhere);
    fill_kernel<<<flat_blocks(tokens), kThreads, 0, stream>>>(ids, starts, order, lists);
    check_launch(kWhere);
    order_kernel<<<flat_blocks(tokens), kThreads, 0, stream>>>(ids, starts, lists, order);
    check_launch(kWhere);
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
