#pragma once

#include "backend/cuda/vec.cuh"

// rope: one launch for q and k. A block owns a few tokens: it forms their cos and sin once, in shared memory, and turns
// all heads with them. A thread takes W pairs of one head and token at a time, several at once in flight.
namespace tigon::cuda {

inline constexpr int kMaxFrequencies = 512;  // pairs per launch; a larger rotary_dim takes several

// One tensor to turn, as [batch, heads, seq, D].
template <class T, class Index>
struct RopeHeads {
  const T* x = nullptr;
  T* y = nullptr;
  Index x_strides[3] = {};
  Index y_strides[3] = {};

  __device__ __forceinline__ const T* from(int batch, int head, int token) const {
    return x + (int64_t{batch} * x_strides[0] + int64_t{head} * x_strides[1] + int64_t{token} * x_strides[2]);
  }
  __device__ __forceinline__ T* to(int batch, int head, int token) const {
    return y + (int64_t{batch} * y_strides[0] + int64_t{head} * y_strides[1] + int64_t{token} * y_strides[2]);
  }
};

template <class T, class Index>
struct RopeBoth {
  RopeHeads<T, Index> of[2];  // q and k
};

struct RopeJob {
  int seq, heads, q_heads;  // heads of q and k together
  int width, rotary;
  int first_pair, end_pair;  // of this launch
  int tile, tiles;           // tokens per block; blocks per sequence
  int64_t blocks;
  const void* positions;
  const void* cos;  // null: from frequencies
  const void* sin;
  int64_t cos_stride, sin_stride, table_rows;
  int table_step;  // 2 where each value stands twice side by side
  DType position_type, table_type;
  bool by_batch, interleaved;
  bool tokens_inside;  // which of tokens and heads lie side by side in memory
  bool copy_rest;
  float factor;     // of cos and sin
  float direction;  // −1 in backward
  float frequencies[kMaxFrequencies];
};

__device__ __forceinline__ float table_value(const void* table, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::bf16: return load_one(static_cast<const bf16*>(table) + index);
    case DType::f16: return load_one(static_cast<const f16*>(table) + index);
    default: return static_cast<const float*>(table)[index];
  }
}

// cos and sin of one pair.
__device__ __forceinline__ float2 rope_angle(const RopeJob& job, int64_t entry, int pair) {
  int64_t position = entry;
  if (job.positions != nullptr) {
    position = job.position_type == DType::i32 ? static_cast<const int32_t*>(job.positions)[entry]
                                               : static_cast<const int64_t*>(job.positions)[entry];
  }
  float cos, sin;
  if (job.cos == nullptr) {
    sincosf(__fmul_rn(static_cast<float>(position), job.frequencies[pair - job.first_pair]), &sin, &cos);
    cos *= job.factor;
    sin *= job.factor;
  } else if (position >= 0 && position < job.table_rows) {
    cos = table_value(job.cos, job.table_type, position * job.cos_stride + int64_t{pair} * job.table_step);
    sin = table_value(job.sin, job.table_type, position * job.sin_stride + int64_t{pair} * job.table_step);
  } else {  // no such row: the host could not look
    cos = sin = __int_as_float(0x7fc00000);
  }
  return make_float2(cos, sin * job.direction);
}

// Shared memory: cos of [tile, pairs], then sin.
inline size_t rope_shared(int tile, int pairs) { return size_t{2} * static_cast<size_t>(tile * pairs) * sizeof(float); }

// W pairs are 2·W elements: W of each half of the head, or 2·W side by side.
template <class T, int W, class Index, int kThreads, int kEach>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(const __grid_constant__ RopeJob job, const __grid_constant__ RopeBoth<T, Index> both) {
  extern __shared__ __align__(16) float angles[];
  const int pairs = job.end_pair - job.first_pair, chunks = (pairs + W - 1) / W, half = job.rotary / 2;
  for (int64_t block = blockIdx.x; block < job.blocks; block += gridDim.x) {
    const int batch = static_cast<int>(block / job.tiles);
    const int first_token = static_cast<int>(block - int64_t{batch} * job.tiles) * job.tile;
    const int tokens = job.seq - first_token < job.tile ? job.seq - first_token : job.tile;
    const int items = tokens * job.heads * chunks;
    float* cosines = angles;
    float* sines = angles + tokens * pairs;

    // Item: chunk innermost, then whichever of tokens and heads lie side by side.
    struct Place {
      int chunk, head, token;
    };
    const auto place = [&](int item) {
      const int row = item / chunks, inner = job.tokens_inside ? tokens : job.heads, outer = row / inner;
      const int first = row - outer * inner;
      return job.tokens_inside ? Place{item - row * chunks, outer, first} : Place{item - row * chunks, first, outer};
    };
    const auto heads_of = [&](const Place& at) -> const RopeHeads<T, Index>& {
      return both.of[at.head >= job.q_heads];
    };
    const auto head_in = [&](const Place& at) { return at.head >= job.q_heads ? at.head - job.q_heads : at.head; };
    const auto low_of = [&](const Place& at) {
      const int pair = job.first_pair + at.chunk * W;
      return job.interleaved ? 2 * pair : pair;
    };
    const int apart = job.interleaved ? W : half;

    bool ready = false;
    for (int begin = 0; begin < items; begin += kThreads * kEach) {
      Raw<T, W> raw[kEach][2];
#pragma unroll
      for (int u = 0; u < kEach; ++u) {
        const int item = begin + u * kThreads + static_cast<int>(threadIdx.x);
        if (item >= items) continue;
        const Place at = place(item);
        const T* from = heads_of(at).from(batch, head_in(at), first_token + at.token) + low_of(at);
        raw[u][0] = load_raw<W>(from);
        raw[u][1] = load_raw<W>(from + apart);
      }
      if (!ready) {  // while the first loads are on their way
        ready = true;
        for (int a = static_cast<int>(threadIdx.x); a < tokens * pairs; a += kThreads) {
          const int token = a / pairs;
          const int64_t entry = (job.by_batch ? int64_t{batch} * job.seq : 0) + first_token + token;
          const float2 angle = rope_angle(job, entry, job.first_pair + a - token * pairs);
          cosines[a] = angle.x;
          sines[a] = angle.y;
        }
        __syncthreads();
      }
#pragma unroll
      for (int u = 0; u < kEach; ++u) {
        const int item = begin + u * kThreads + static_cast<int>(threadIdx.x);
        if (item >= items) continue;
        const Place at = place(item);
        float cos[W], sin[W], a[W], b[W];
        const int angle = at.token * pairs + at.chunk * W;
        if constexpr (W > 1) {  // pairs is a multiple of W
#pragma unroll
          for (int q = 0; q < W / 4; ++q) {
            float four[4];
            load<4>(cosines + angle + 4 * q, four);
#pragma unroll
            for (int k = 0; k < 4; ++k) cos[4 * q + k] = four[k];
            load<4>(sines + angle + 4 * q, four);
#pragma unroll
            for (int k = 0; k < 4; ++k) sin[4 * q + k] = four[k];
          }
        } else {
          cos[0] = cosines[angle];
          sin[0] = sines[angle];
        }
        unpack<T, W>(raw[u][0], a);
        unpack<T, W>(raw[u][1], b);
        if (job.interleaved && W > 1) {
#pragma unroll
          for (int p = 0; p < W / 2; ++p) {
            const float a0 = a[2 * p], a1 = a[2 * p + 1], b0 = b[2 * p], b1 = b[2 * p + 1];
            a[2 * p] = a0 * cos[p] - a1 * sin[p];
            a[2 * p + 1] = a1 * cos[p] + a0 * sin[p];
            b[2 * p] = b0 * cos[W / 2 + p] - b1 * sin[W / 2 + p];
            b[2 * p + 1] = b1 * cos[W / 2 + p] + b0 * sin[W / 2 + p];
          }
        } else {
#pragma unroll
          for (int p = 0; p < W; ++p) {
            const float x = a[p], y = b[p];
            a[p] = x * cos[p] - y * sin[p];
            b[p] = y * cos[p] + x * sin[p];
          }
        }
        T* to = heads_of(at).to(batch, head_in(at), first_token + at.token) + low_of(at);
        store<W>(to, a);
        store<W>(to + apart, b);
      }
    }
    if (job.copy_rest) {
      const int rest = (job.width - job.rotary) / W, rows = tokens * job.heads;
      for (int item = static_cast<int>(threadIdx.x); item < rows * rest; item += kThreads) {
        const int row = item / rest, token = row / job.heads;
        const Place at{0, row - token * job.heads, token};
        const T* from = heads_of(at).from(batch, head_in(at), first_token + token);
        T* to = heads_of(at).to(batch, head_in(at), first_token + token);
        const int j = job.rotary + (item - row * rest) * W;
        if (from != to) store_raw<W>(to + j, load_raw<W>(from + j));
      }
    }
    __syncthreads();  // the angles of the next tokens come where these are
  }
}

}  // namespace tigon::cuda
