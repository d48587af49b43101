#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/vec.cuh"

// embedding: forward copies rows. Backward groups the tokens by id: counters say where each id's list begins, and a
// token's place in it is the number of earlier tokens in the same list. Counts do not depend on the order in which
// threads come, so lists always stand by rising position, and each row of dweight is summed in that order and written
// once.
namespace tigon::cuda {

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

// A thread takes the same columns of kRows rows, so that as many loads are in flight once the ids are there.
template <class T, int W, int kThreads, int kRows>
__global__ void __launch_bounds__(kThreads)
    embedding_forward_kernel(Ids ids, Rows<const T> weight, Rows<T> y, int64_t hidden, float scale) {
  const int64_t first_step = int64_t{gridDim.x} * blockDim.y * kRows, step = int64_t{gridDim.y} * blockDim.x * W;
  for (int64_t first = (int64_t{blockIdx.x} * blockDim.y + threadIdx.y) * kRows; first < ids.count;
       first += first_step) {
    int64_t id[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) id[r] = first + r < ids.count ? ids.at(first + r) : -1;
    for (int64_t j = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W; j < hidden; j += step) {
      Raw<T, W> raw[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (id[r] >= 0) raw[r] = load_raw<W>(weight.at(id[r]) + j);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (first + r >= ids.count) continue;
        float v[W];
        unpack<T, W>(raw[r], v);
#pragma unroll
        for (int k = 0; k < W; ++k) v[k] = id[r] >= 0 ? v[k] * scale : __int_as_float(0x7fc00000);
        store<W>(y.at(first + r) + j, v);
      }
    }
  }
}

// --- the lists; places and positions are 32 bits wide: no call has 2^31 tokens ---

// places[i]: the how-manieth token of its id came, in no particular order.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) count_kernel(Ids ids, unsigned* counts, unsigned* places) {
  wait_for_previous();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < ids.count; i += int64_t{gridDim.x} * kThreads) {
    const int64_t id = ids.at(i);
    if (id >= 0) places[i] = atomicAdd(counts + id, 1u);
  }
  let_next_begin();
}

constexpr int kScanThreads = 1024;
constexpr int kScanEach = 4;
constexpr int kScanPiece = kScanThreads * kScanEach;

// counts[i] becomes the sum of all counts before it. A block per piece: it publishes the sum of its own counts and adds
// up what the blocks before it have published. Those have begun before it, so it waits for no one who waits for it.
// `sums` begins as zeros; a published sum carries the top bit.
template <class = void>
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(unsigned* counts, int64_t n, unsigned long long* sums, unsigned* ticket) {
  constexpr auto kThere = 1ull << 63;
  __shared__ unsigned warp_sums[32];
  __shared__ unsigned long long shared[32];
  __shared__ unsigned piece;
  wait_for_previous();
  if (threadIdx.x == 0) piece = atomicAdd(ticket, 1u);  // in the order in which blocks begin
  __syncthreads();
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first = int64_t{piece} * kScanPiece + int64_t{threadIdx.x} * kScanEach;
  unsigned mine[kScanEach], total = 0;
#pragma unroll
  for (int k = 0; k < kScanEach; ++k) {
    mine[k] = first + k < n ? counts[first + k] : 0;
    total += mine[k];
  }
  unsigned inside = total;  // including this thread, within the warp
#pragma unroll
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, inside, offset);
    if (lane >= offset) inside += other;
  }
  if (lane == 31) warp_sums[warp] = inside;
  __syncthreads();
  unsigned earlier = 0;
  {
    unsigned of_warp = warp_sums[lane], up_to = of_warp;
#pragma unroll
    for (unsigned offset = 1; offset < 32; offset *= 2) {
      const unsigned other = __shfl_up_sync(0xffffffffu, up_to, offset);
      if (lane >= offset) up_to += other;
    }
    earlier = __shfl_sync(0xffffffffu, up_to - of_warp, static_cast<int>(warp));
    const unsigned all = __shfl_sync(0xffffffffu, up_to, 31);
    if (threadIdx.x == 0) atomicExch(sums + piece, kThere | all);
  }
  unsigned long long before = 0;
  for (unsigned p = threadIdx.x; p < piece; p += kScanThreads) {
    unsigned long long sum;
    do {
      sum = *static_cast<volatile unsigned long long*>(sums + p);
    } while (!(sum & kThere));
    before += sum & ~kThere;
  }
  before = block_reduce(before, 0ull, Sum(), shared);
  unsigned at = static_cast<unsigned>(before) + earlier + inside - total;
#pragma unroll
  for (int k = 0; k < kScanEach; ++k) {
    if (first + k < n) counts[first + k] = at;
    at += mine[k];
  }
  let_next_begin();
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(Ids ids, const unsigned* starts, const unsigned* places, unsigned* lists) {
  wait_for_previous();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < ids.count; i += int64_t{gridDim.x} * kThreads) {
    const int64_t id = ids.at(i);
    if (id >= 0) lists[starts[id] + places[i]] = static_cast<unsigned>(i);
  }
  let_next_begin();
}

// The lists by rising position.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    order_kernel(Ids ids, const unsigned* starts, const unsigned* lists, unsigned* order) {
  wait_for_previous();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < ids.count; i += int64_t{gridDim.x} * kThreads) {
    const int64_t id = ids.at(i);
    if (id < 0) continue;
    const unsigned begin = starts[id], end = starts[id + 1];
    unsigned earlier = 0;
#pragma unroll 8
    for (unsigned k = begin; k < end; ++k) earlier += lists[k] < i ? 1 : 0;
    order[begin + earlier] = static_cast<unsigned>(i);
  }
  let_next_begin();
}

// A block takes kIds ids in a row, columns along x, so that one wait for the lists' ends serves them all. Ids without
// tokens are first: their rows are zeros, for which nothing is waited.
template <class T, class Out, int W, int kThreads, int kIds>
__global__ void __launch_bounds__(kThreads)
    embedding_backward_kernel(const unsigned* starts, const unsigned* order, Rows<const T> dy, Rows<Out> dweight,
                              int64_t vocab, int64_t hidden, float scale, bool accumulate) {
  __shared__ unsigned ends[kIds + 1];
  wait_for_previous();
  const auto write = [&](int64_t id, int64_t j, float(&sum)[W]) {
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
  };
  for (int64_t first = int64_t{blockIdx.x} * kIds; first < vocab; first += int64_t{gridDim.x} * kIds) {
    const int ids = vocab - first < kIds ? static_cast<int>(vocab - first) : kIds;
    const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    if (thread <= ids) ends[thread] = starts[first + thread];
    __syncthreads();
    if (!accumulate) {
      for (auto k = static_cast<int>(threadIdx.y); k < ids; k += static_cast<int>(blockDim.y)) {
        if (ends[k] != ends[k + 1]) continue;
        for (int64_t j = int64_t{threadIdx.x} * W; j < hidden; j += int64_t{blockDim.x} * W) {
          float zeros[W] = {};
          write(first + k, j, zeros);
        }
      }
    }
    for (auto k = static_cast<int>(threadIdx.y); k < ids; k += static_cast<int>(blockDim.y)) {
      const unsigned begin = ends[k], end = ends[k + 1];
      if (begin == end) continue;
      for (int64_t j = int64_t{threadIdx.x} * W; j < hidden; j += int64_t{blockDim.x} * W) {
        float sum[W] = {};
#pragma unroll 4
        for (unsigned t = begin; t < end; ++t) {
          float v[W];
          load<W>(dy.at(order[t]) + j, v);
#pragma unroll
          for (int e = 0; e < W; ++e) sum[e] += v[e];
        }
        write(first + k, j, sum);
      }
    }
    __syncthreads();
  }
}

}  // namespace tigon::cuda
