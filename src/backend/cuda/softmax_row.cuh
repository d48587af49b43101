#pragma once

#include <cooperative_groups.h>

#include "backend/cuda/barrier.cuh"
#include "backend/cuda/exponential.cuh"
#include "backend/cuda/row_edge.cuh"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

// What softmax and the losses share: a row held in registers as stored, and the maximum and Σ e^(x − maximum) of it in
// one read. Short rows belong to a block each. On sm_90 a long row belongs to a team of up to 8 blocks, a cluster,
// whose registers together hold it whole while the next rows arrive; older chips read again (from L2) what a block
// cannot hold.
namespace tigon::cuda {

inline constexpr int kRowThreads = 512;
inline constexpr int kTeamThreads = 256;  // of each block of a team
inline constexpr int kRowWarps = kRowThreads / 32;
inline constexpr int kMaxTeam = 8;

__device__ __forceinline__ float lowest() { return __int_as_float(static_cast<int>(0xff800000u)); }  // −infinity

// The maximum of some values and Σ e^(value − maximum). NaN and +infinity show in the sum.
struct MaxSum {
  float max;
  float sum;

  // What is subtracted before the exponent; without any finite value there is nothing to subtract.
  __device__ __forceinline__ static float shift_of(float largest) { return largest == lowest() ? 0.0f : largest; }
  __device__ __forceinline__ float shift() const { return shift_of(max); }
  // The sum as if `largest` had been the maximum.
  __device__ __forceinline__ float sum_under(float largest) const {
    return max == largest ? sum : sum * expf(max - largest);
  }
};

__device__ __forceinline__ MaxSum no_max_sum() { return {lowest(), 0.0f}; }

struct JoinMaxSum {
  __device__ __forceinline__ MaxSum operator()(const MaxSum& a, const MaxSum& b) const {
    const float largest = fmaxf(a.max, b.max);
    return {largest, a.sum_under(largest) + b.sum_under(largest)};
  }
};

// A warp agrees on the maximum first, so that each thread rescales once.
template <>
__device__ __forceinline__ MaxSum warp_reduce(MaxSum mine, JoinMaxSum) {
  const float largest = warp_reduce(mine.max, Max());
  return {largest, warp_reduce(mine.sum_under(largest), Sum())};
}

// The blocks that share a row. Reductions give every thread the result, in an order fixed by the shape.
class Team {
 public:
  struct Shared {
    uint64_t arrived[2];  // barriers of the hardware, used in turn, as are the parts: a warp is at most one join ahead
    MaxSum parts[2][kMaxTeam * kRowWarps];
  };

  // More than one block: sm_90 alone. Every thread of every block comes here.
  __device__ __forceinline__ Team(unsigned blocks, unsigned rank, Shared& shared)
      : blocks_(blocks), rank_(rank), shared_(shared) {
    if (blocks_ == 1) return;
    if (threadIdx.x == 0) {
      for (uint64_t& barrier : shared_.arrived) init_barrier(&barrier);
      fence_barriers();
    }
#if __CUDA_ARCH__ >= 900
    cooperative_groups::this_cluster().sync();
#endif
  }

  __device__ __forceinline__ bool first_thread() const { return rank_ == 0 && threadIdx.x == 0; }

  // The whole team's maximum and sum. Each warp sends its own to every block, whose barrier counts the bytes: a barrier
  // of the cluster would wait until the last row's stores have reached memory.
  __device__ __forceinline__ MaxSum join(MaxSum mine) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    MaxSum* parts = shared_.parts[turn_];
    mine = warp_reduce(mine, JoinMaxSum());
    if (blocks_ == 1) {
      if (lane == 0) parts[warp] = mine;
      __syncthreads();
    } else {
      uint64_t* barrier = &shared_.arrived[turn_];
      if (threadIdx.x == 0) expect_bytes(barrier, blocks_ * warps * static_cast<uint32_t>(sizeof(MaxSum)));
      if (lane < blocks_) send(parts + rank_ * warps + warp, mine, barrier, lane);
      wait_barrier(barrier, (phases_ >> turn_) & 1u);
      phases_ ^= 1u << turn_;
    }
    MaxSum all = no_max_sum();
    for (unsigned i = lane; i < blocks_ * warps; i += 32) all = JoinMaxSum()(all, parts[i]);
    turn_ ^= 1;
    return warp_reduce(all, JoinMaxSum());
  }

  // Any other value, with a barrier of the whole team. `parts` is used again only after another reduction.
  template <class V, class Combine>
  __device__ __forceinline__ V reduce(V mine, V identity, Combine combine, V (&parts)[kMaxTeam * kRowWarps]) const {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    mine = warp_reduce(mine, combine);
    if (blocks_ == 1) {
      if (lane == 0) parts[warp] = mine;
      __syncthreads();
    } else {
#if __CUDA_ARCH__ >= 900
      const auto cluster = cooperative_groups::this_cluster();
      if (lane < blocks_) cluster.map_shared_rank(parts, lane)[rank_ * warps + warp] = mine;
      cluster.sync();
#endif
    }
    V all = identity;
    for (unsigned i = lane; i < blocks_ * warps; i += 32) all = combine(all, parts[i]);
    return warp_reduce(all, combine);
  }

 private:
  __device__ __forceinline__ static void send(MaxSum* to, const MaxSum& value, uint64_t* barrier, unsigned block) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n"
        ".reg .b32 there, counter;\n"
        "mapa.shared::cluster.u32 there, %0, %4;\n"
        "mapa.shared::cluster.u32 counter, %1, %4;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [there], {%2, %3}, [counter];\n"
        "}\n" ::"r"(shared_address(to)),
        "r"(shared_address(barrier)), "r"(__float_as_uint(value.max)), "r"(__float_as_uint(value.sum)), "r"(block)
        : "memory");
#endif
  }

  unsigned blocks_, rank_;
  Shared& shared_;
  uint32_t turn_ = 0, phases_ = 0;
};

// A thread's part of columns [begin, end) of a row: vectors of kWidth elements, the first NV of them in registers as
// stored, the rest (unless that is the whole row) read again for each pass. What lies past the end, in a held vector,
// is −infinity: passes need not ask where they are, and their code has no branches. kAnywhere: the row may begin at any
// element; then what lies before it, in its first vector, is −infinity too.
template <class T, int W, int NV, bool kWhole, bool kAnywhere = false>
class HeldRow {
 public:
  static constexpr int kWidth = W, kHeld = NV;
  static constexpr bool kShifted = kAnywhere;

  // `data`: where column share.begin is. Where kWhole, the share's first and last vector hold −infinity beside it.
  __device__ __forceinline__ HeldRow(const T* data, const RowShare& share)
      : data_(data), begin_(share.begin), end_(share.end), first_(share.first() + static_cast<int>(threadIdx.x) * W) {
    const float nothing[1] = {lowest()};
    const Raw<T, 1> none = pack<T, 1>(nothing);
#pragma unroll
    for (int i = 0; i < NV; ++i) {
      held_[i] = repeat(none);
      if (readable(first_ + i * step())) held_[i] = load_raw<W>(data_ + (first_ - begin_ + i * step()));
    }
    if constexpr (kAnywhere && !kWhole) {  // when all whole ones are on their way
#pragma unroll
      for (int i = 0; i < NV; ++i) {
        const int j = first_ + i * step();
        if (j < end_ && !is_whole<W>(j, begin_, end_))
          held_[i] = load_some<W>(data_ - begin_, j, begin_, end_, lowest());
      }
    } else if (!kWhole && W > 1 && end_ % W != 0) {  // the last vector of a padded row
#pragma unroll
      for (int i = 0; i < NV; ++i) held_[i] = trimmed(first_ + i * step(), held_[i]);
    }
  }

  __device__ __forceinline__ bool inside(int column) const {
    if constexpr (kAnywhere) return column >= begin_ && column < end_;
    return column < end_;
  }
  // One element, from memory: for a single thread, while what the row was read from is still there.
  __device__ __forceinline__ float peek(int column) const { return load_one(data_ + (column - begin_)); }
  __device__ __forceinline__ bool holds(int column) const { return column >= begin_ && column < end_; }

  // f(column, values) for each vector of this thread, by rising column. f may overwrite the vector it was given.
  template <class F>
  __device__ __forceinline__ void for_each(F&& f) const {
    for_each_raw([&](int j, const Raw<T, W>& raw) {
      float values[W];
      unpack<T, W>(raw, values);
      f(j, values);
    });
  }

  // The held vector i, and its first column.
  __device__ __forceinline__ int column(int i) const { return first_ + i * step(); }
  __device__ __forceinline__ void values(int i, float (&v)[W]) const {
    if constexpr (W > 1) keep_packed(held_[i]);
    unpack<T, W>(held_[i], v);
  }
  __device__ __forceinline__ RowShare share() const {
    return {begin_, end_, kAnywhere ? begin_ - (first_ - static_cast<int>(threadIdx.x) * W) : 0};
  }

  // What another row, of the same lead, has in the columns of a vector; 0 beside the row.
  __device__ __forceinline__ void beside(const T* other, int column, float (&v)[W]) const {
    if constexpr (kAnywhere) {
      unpack<T, W>(load_within<W>(other, column, begin_, end_, 0.0f), v);
    } else {
      load<W>(other + column, v);
    }
  }
  // Writes a vector to another row, of the same lead.
  __device__ __forceinline__ void store_to(T* other, int column, const float (&v)[W]) const {
    if constexpr (kAnywhere) {
      store_within<W>(other, column, begin_, end_, v);
    } else if (inside(column)) {
      store<W>(other + column, v);
    }
  }

  // The largest element of this thread; passes over NaN.
  __device__ __forceinline__ float largest() const {
    if constexpr (W == 1 || std::is_same_v<T, float>) {
      float top = lowest();
      for_each([&](int, const float(&v)[W]) {
#pragma unroll
        for (int k = 0; k < W; ++k) top = fmaxf(top, v[k]);
      });
      return top;
    } else {  // two at a time
      using Pair = std::conditional_t<std::is_same_v<T, bf16>, __nv_bfloat162, __half2>;
      uint32_t bits[4];
#pragma unroll
      for (uint32_t& b : bits) b = std::is_same_v<T, bf16> ? 0xff80ff80u : 0xfc00fc00u;  // −infinity
      const auto larger = [](uint32_t x, uint32_t y) {
        const Pair pair = __hmax2(*reinterpret_cast<const Pair*>(&x), *reinterpret_cast<const Pair*>(&y));
        return *reinterpret_cast<const uint32_t*>(&pair);
      };
      for_each_raw([&](int, const Raw<T, W>& raw) {
        const auto* words = reinterpret_cast<const uint32_t*>(&raw);
#pragma unroll
        for (int k = 0; k < W / 2; ++k) bits[k] = larger(bits[k], words[k]);
      });
      const uint32_t all = larger(larger(bits[0], bits[1]), larger(bits[2], bits[3]));
      const Pair pair = *reinterpret_cast<const Pair*>(&all);
      return fmaxf(__low2float(pair), __high2float(pair));
    }
  }

 private:
  // Whether the vector there can be read at once.
  __device__ __forceinline__ bool readable(int column) const {
    if constexpr (kAnywhere && !kWhole) return is_whole<W>(column, begin_, end_);
    return column < end_;
  }
  __device__ __forceinline__ static int step() { return static_cast<int>(blockDim.x) * W; }
  __device__ __forceinline__ static Raw<T, W> repeat(const Raw<T, 1>& one) {
    Raw<T, W> all;
    auto* elements = reinterpret_cast<Raw<T, 1>*>(&all);
#pragma unroll
    for (int k = 0; k < W; ++k) elements[k] = one;
    return all;
  }
  __device__ __forceinline__ Raw<T, W> trimmed(int j, const Raw<T, W>& raw) const {
    if (j + W <= end_) return raw;
    float values[W];
    unpack<T, W>(raw, values);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      if (!inside(j + k)) values[k] = lowest();
    }
    return pack<T, W>(values);
  }
  template <class F>
  __device__ __forceinline__ void for_each_raw(F&& f) const {
#pragma unroll
    for (int i = 0; i < NV; ++i) {
      if constexpr (W > 1) keep_packed(held_[i]);
      f(first_ + i * step(), held_[i]);
    }
    if constexpr (kAnywhere && !kWhole) {
      for (int j = first_ + NV * step(); j < end_; j += step()) {
        f(j, load_within<W>(data_ - begin_, j, begin_, end_, lowest()));
      }
    } else if constexpr (!kWhole) {
      for (int j = first_ + NV * step(); j < end_; j += step()) f(j, trimmed(j, load_raw<W>(data_ + (j - begin_))));
    }
  }

  const T* data_;
  int begin_, end_, first_;
  mutable Raw<T, W> held_[NV];
};

}  // namespace tigon::cuda
