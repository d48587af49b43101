#pragma once

// Sums over the threads of a warp and of a block, in an order that only their numbers fix.
namespace tigon::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kMaxWarps = 32;

template <class V, class F>
__device__ inline V warp_reduce(V value, const F& combine) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

__device__ inline float warp_sum(float value) {
  return warp_reduce(value, [](float a, float b) { return a + b; });
}

// Reductions over a block, any number of times: each thread gets the result. One barrier each; two buffers, used in
// turn, so that a thread that is still reading is never overtaken.
template <class V>
class BlockReduce {
 public:
  struct Storage {
    V parts[2][kMaxWarps];
  };

  __device__ explicit BlockReduce(Storage& storage) : storage_(storage) {}

  template <class F>
  __device__ V operator()(V value, const F& combine) {
    value = warp_reduce(value, combine);
    const unsigned warps = blockDim.x / kWarp;
    if (warps == 1) return value;
    V* parts = storage_.parts[turn_];
    turn_ ^= 1;
    if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = value;
    __syncthreads();
    V total = parts[0];
    for (unsigned w = 1; w < warps; ++w) total = combine(total, parts[w]);
    return total;
  }

  __device__ V sum(V value) {
    return (*this)(value, [](V a, V b) { return a + b; });
  }

 private:
  Storage& storage_;
  int turn_ = 0;
};

// The same as two reductions at the cost of one barrier.
struct TwoSums {
  float a, b;
};
__device__ inline TwoSums operator+(TwoSums x, TwoSums y) { return {x.a + y.a, x.b + y.b}; }
template <class F>
__device__ inline TwoSums warp_reduce(TwoSums value, const F&) {
  return {warp_sum(value.a), warp_sum(value.b)};
}

}  // namespace tigon::cuda
