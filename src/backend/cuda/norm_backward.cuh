#pragma once

#include "backend/cuda/element.cuh"
#include "backend/cuda/norm_math.cuh"
#include "backend/cuda/row_ring.cuh"

// Backward of the norms on a persistent grid. Each block keeps the weights in shared memory as f32 and is cut into
// groups that walk over rows of their own, with their share of dweight (and dbias) in f32 registers, while the next
// rows arrive in shared memory. At the end the groups of a block add up their shares, each block writes one, and a
// second kernel adds up those in order.
namespace tigon::cuda {

template <class T>
struct NormBackwardRows {
  Rows<const T> x, dy, dresidual;
  Rows<T> dx;
  Parameter weight;
  const float* mean;
  const float* rstd;
  float* dweight;  // [blocks, hidden], or null
  float* dbias;
  int64_t tokens, hidden;
  unsigned group_threads;
  bool round_early;
};

// Dynamic shared memory of a block: the weights, then the rings.
template <class T, int kStages>
constexpr size_t norm_backward_shared(size_t hidden, size_t groups) {
  return hidden * 4 + groups * RowRing<T, 2, kStages, false>::bytes(hidden);
}

// A block's share: each group but the first leaves its own in shared memory, and the first adds them up in order.
template <int kPacks, int W>
__device__ __forceinline__ void write_share(float* shares, const float (&mine)[kPacks][W], float* left,
                                            const Group<true>& group, unsigned groups, unsigned hidden) {
  const auto column = [&](int p) { return (group.thread() + p * group.threads()) * W; };
  __syncthreads();
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) >= hidden || group.index() == 0) continue;
#pragma unroll
    for (int q = 0; q < W / 4; ++q) {
      *reinterpret_cast<float4*>(left + (group.index() - 1) * hidden + column(p) + 4 * q) =
          make_float4(mine[p][4 * q], mine[p][4 * q + 1], mine[p][4 * q + 2], mine[p][4 * q + 3]);
    }
  }
  __syncthreads();
  if (group.index() != 0) return;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (column(p) >= hidden) continue;
#pragma unroll
    for (int q = 0; q < W / 4; ++q) {
      float4 sum = make_float4(mine[p][4 * q], mine[p][4 * q + 1], mine[p][4 * q + 2], mine[p][4 * q + 3]);
      for (unsigned g = 1; g < groups; ++g) {
        const float4 other = *reinterpret_cast<const float4*>(left + (g - 1) * hidden + column(p) + 4 * q);
        sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
      }
      *reinterpret_cast<float4*>(shares + int64_t{blockIdx.x} * hidden + column(p) + 4 * q) = sum;
    }
  }
}

// Each thread has kPacks times 16 bytes of a row, which it reads from shared memory in both passes over it.
template <class T, Norm kNorm, int kPacks, int kMaxThreads, int kStages, bool kBulk>
__global__ void __launch_bounds__(kMaxThreads, 1)
    norm_backward_kernel(const __grid_constant__ NormBackwardRows<T> args) {
  static_assert(!kBulk || kStages > 1, "a slot is refilled one row late");
  constexpr int W = kLanes<T>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ GroupParts parts;
  __shared__ uint64_t arrived[kMaxWarps * kStages];
  Group<true> group(args.group_threads, parts);
  const unsigned groups = blockDim.x / group.threads();
  const auto hidden = static_cast<unsigned>(args.hidden);
  const auto column = [&](int p) { return (group.thread() + p * group.threads()) * W; };
  // Weight 4·q + k of pack j stands at [q][j][k]: neighbouring threads read neighbouring 16 bytes.
  const unsigned packs = hidden / W;
  auto* weights = reinterpret_cast<float4*>(shared);
  const auto weights_of = [&](int p, int q) {
    return reinterpret_cast<const float*>(weights + q * packs + group.thread() + p * group.threads());
  };
  using Ring = RowRing<T, 2, kStages, kBulk>;
  Ring ring(group, shared + hidden * 4 + group.index() * Ring::bytes(hidden), arrived + group.index() * kStages,
            hidden);
  __syncthreads();
  wait_for_previous();

  const int tokens = static_cast<int>(args.tokens), step = static_cast<int>(gridDim.x * groups);
  int i = static_cast<int>(group.index() * gridDim.x + blockIdx.x);
  const auto fetch = [&](int stage, int row) {
    ring.fetch(stage, row < tokens, [&](int t) { return t == 0 ? args.x.at(row) : args.dy.at(row); });
  };
#pragma unroll
  for (int s = 0; s < kStages; ++s) fetch(s, i + s * step);
  for (unsigned j = threadIdx.x; j < packs; j += blockDim.x) {
    float weight[W];
    read_parameters<T>(args.weight, j * W, weight);
#pragma unroll
    for (int q = 0; q < W / 4; ++q) {
      weights[q * packs + j] = make_float4(weight[4 * q], weight[4 * q + 1], weight[4 * q + 2], weight[4 * q + 3]);
    }
  }
  __syncthreads();

  float dweight[kPacks][W] = {}, dbias[kPacks][W] = {};
  const float share = 1.0f / static_cast<float>(hidden);
  float next_rstd = i < tokens ? args.rstd[i] : 0.0f;
  float next_mean = kNorm == Norm::layer && i < tokens ? args.mean[i] : 0.0f;
  int stage = 0;
  unsigned phase = 0;
  for (bool first = true; i < tokens; i += step, first = false) {
    const float rstd = next_rstd, mean = next_mean;
    if (i + step < tokens) {
      next_rstd = args.rstd[i + step];
      if constexpr (kNorm == Norm::layer) next_mean = args.mean[i + step];
    }
    Raw<T, W> above[kPacks];  // is needed last, but asked for first
    if constexpr (kNorm == Norm::add_rms) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) < hidden) above[p] = load_raw_once(args.dresidual.at(i) + column(p));
      }
    }
    ring.wait(stage, phase);
    const T *x_slot = ring.slot(stage, 0), *dy_slot = ring.slot(stage, 1);

    float sums[kRowSums<kNorm>] = {};
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= hidden) continue;
      float x[W], dy[W], normal[W];
      load<W>(x_slot + column(p), x);
      load<W>(dy_slot + column(p), dy);
#pragma unroll
      for (int e = 0; e < W; ++e) normal[e] = normal_of<kNorm>(x[e], mean, rstd);
      if (kNorm != Norm::layer && args.round_early) round_all<T>(normal);
#pragma unroll
      for (int q = 0; q < W / 4; ++q) {
        float weight[4];
        load<4>(weights_of(p, q), weight);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int e = 4 * q + k;
          add_terms<kNorm>(sums, dy[e] * weight[k], x[e], normal[e]);
          dweight[p][e] = fmaf(dy[e], normal[e], dweight[p][e]);
          if constexpr (kNorm == Norm::layer) dbias[p][e] += dy[e];
        }
      }
    }
    group.sum(sums);
    if constexpr (kBulk) {  // all are past the barrier, so all are done with the row before
      if (!first) fetch(stage == 0 ? kStages - 1 : stage - 1, i + (kStages - 1) * step);
    }
    if (args.dx.data != nullptr) {
#pragma unroll
      for (float& sum : sums) sum *= share;
      const Gradient<kNorm> gradient(mean, rstd, sums);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) >= hidden) continue;
        float x[W], dy[W], dx[W];
        load<W>(x_slot + column(p), x);
        load<W>(dy_slot + column(p), dy);
#pragma unroll
        for (int q = 0; q < W / 4; ++q) {
          float weight[4];
          load<4>(weights_of(p, q), weight);
#pragma unroll
          for (int k = 0; k < 4; ++k) dx[4 * q + k] = gradient(dy[4 * q + k] * weight[k], x[4 * q + k]);
        }
        if constexpr (kNorm == Norm::add_rms) {
          float more[W];
          unpack<T, W>(above[p], more);
#pragma unroll
          for (int e = 0; e < W; ++e) dx[e] += more[e];
        }
        store<W>(args.dx.at(i) + column(p), dx);
      }
    }
    if constexpr (!kBulk) fetch(stage, i + kStages * step);
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
  // A group that had one row less than the first waits once more: compute-sanitizer's racecheck compares how many
  // barriers threads have passed, whatever their numbers.
  if (i - static_cast<int>(group.index() * gridDim.x) < tokens) group.barrier();
  let_next_begin();

  auto* left = reinterpret_cast<float*>(shared + hidden * 4);  // the rings are empty
  if (args.dweight != nullptr) write_share(args.dweight, dweight, left, group, groups, hidden);
  if constexpr (kNorm == Norm::layer) {
    if (args.dbias != nullptr) write_share(args.dbias, dbias, left, group, groups, hidden);
  }
}

// out[j] = (accumulate ? out[j] : 0) + Σ shares[b, j], for dweight and dbias at once.
struct ShareSum {
  const float* shares;
  void* out;  // null: nothing to do
  DType dtype;
};
struct ShareSums {
  ShareSum of[2];
  int64_t blocks, hidden;
  bool accumulate;
};

// 32 columns per block, each warp every kShareWarps-th share, then the warps in order.
template <int kShareWarps>
__global__ void __launch_bounds__(kShareWarps* kWarp) add_shares_kernel(const __grid_constant__ ShareSums sums) {
  __shared__ float parts[kShareWarps][kWarp];
  const ShareSum& s = sums.of[blockIdx.y];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t j = int64_t{blockIdx.x} * kWarp + lane;
  wait_for_previous();
  if (s.out == nullptr) return;
  float sum = 0.0f;
  if (j < sums.hidden) {
#pragma unroll 16
    for (int64_t b = warp; b < sums.blocks; b += kShareWarps) sum += s.shares[b * sums.hidden + j];
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || j >= sums.hidden) return;
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kShareWarps; ++w) total += parts[w][lane];
  if (sums.accumulate) total += read_element(s.out, s.dtype, j);
  write_element(s.out, s.dtype, j, total);
}

}  // namespace tigon::cuda
