#pragma once

#include "backend/cuda/softmax_row.cuh"

// Where the row goes that an op makes of a held one: write(row, to, f) calls f(column, values), which turns values into
// the new ones, for each vector of each thread; column 0 goes to `to`. Every thread of the block comes here. Before
// what f needs of the kernel before, begin().
namespace tigon::cuda {

// By the threads' own stores.
class StoredRows {
 public:
  __device__ __forceinline__ void begin() {}

  template <class T, class Row, class F>
  __device__ __forceinline__ void write(const Row& row, T* to, const F& f) {
    constexpr int W = Row::kWidth;
    row.for_each([&](int j, float(&v)[W]) {
      f(j, v);
      row.store_to(to, j, v);
    });
  }
};

// Through shared memory and from there by bulk copies (TMA, sm_90): a few vectors of each thread at a time, which lie
// side by side, in two slots that are used in turn.
template <int kPiece>
class SentRows {
 public:
  __host__ __device__ static constexpr size_t bytes(size_t threads) { return 2 * kPiece * threads * 16; }

  __device__ __forceinline__ explicit SentRows(uint4* slots) : slots_(slots) {}

  // Once is enough, and each time would cost.
  __device__ __forceinline__ void begin() {
    if (!begun_) wait_for_previous();
    begun_ = true;
  }

  template <class T, class Row, class F>
  __device__ __forceinline__ void write(const Row& row, T* to, const F& f) {
    constexpr int W = Row::kWidth, NV = Row::kHeld;
    const int threads = static_cast<int>(blockDim.x);
#pragma unroll
    for (int first = 0; first < NV; first += kPiece) {
      uint4* slot = slots_ + turn_ * kPiece * threads;
#pragma unroll
      for (int i = first; i < first + kPiece && i < NV; ++i) {
        float v[W];
        row.values(i, v);
        f(row.column(i), v);
        store<W>(reinterpret_cast<T*>(slot + (i - first) * threads + static_cast<int>(threadIdx.x)), v);
      }
      written_for_copies();
      if (threadIdx.x == 0) wait_sent_read();  // the other slot, which comes next
      __syncthreads();
      const RowShare share = row.share();
      const int begin = share.first() + first * threads * W;
      if constexpr (Row::kShifted) {
        send_whole(share, reinterpret_cast<const T*>(slot), begin, begin + kPiece * threads * W, to);
      } else {
        const int end = min(share.end, begin + kPiece * threads * W);
        if (threadIdx.x == 0 && begin < end) {
          send_bulk(to + begin, slot, static_cast<uint32_t>((end - begin + W - 1) / W * 16));
        }
      }
      turn_ ^= 1;
    }
  }
  // By every thread, before the block ends. It waits for the kernel before in any case, so that what comes after this
  // one comes after that one too.
  __device__ __forceinline__ void finish() {
    begin();
    if (threadIdx.x == 0) wait_sent();
  }

 private:
  // Columns [begin, end), as far as they are in the share: its whole vectors in bulk, its first and last, which may be
  // a neighbouring row's in part, element by element.
  template <class T>
  __device__ __forceinline__ static void send_whole(const RowShare& share, const T* slot, int begin, int end, T* to) {
    constexpr int W = kLanes<T>;
    const int whole_begin = share.whole_begin(W), whole_end = share.whole_end(W);
    const int from = max(begin, whole_begin), until = min(end, whole_end);
    if (threadIdx.x == 0 && from < until) {
      send_bulk(to + from, slot + (from - begin), static_cast<uint32_t>(until - from) * sizeof(T));
    }
    const int edge = static_cast<int>(threadIdx.x) - 32;  // not the warp that sends
    if (edge < 0 || edge >= 2 * W) return;
    const int j = edge < W ? share.first() + edge : whole_end + edge - W;
    const bool whole = j >= whole_begin && j < whole_end;
    if (!whole && j >= max(begin, share.begin) && j < min(end, share.end)) {
      store_raw<1>(to + j, load_raw<1>(slot + (j - begin)));
    }
  }

  uint4* slots_;
  int turn_ = 0;
  bool begun_ = false;
};

}  // namespace tigon::cuda
