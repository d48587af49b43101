#pragma once

#include "backend/cuda/element.cuh"
#include "backend/cuda/norm_math.cuh"
#include "backend/cuda/row_ring.cuh"

// Backward of the norms on a persistent grid. Each block keeps the weights in shared memory as f32 and is cut into
// groups that walk over rows of their own, with their share of dweight (and dbias) in f32 registers, while the next
// rows arrive in shared memory. At the end the groups of a block add up their shares, each block writes one, and a
// second kernel adds up those in order.
//
// Rows may begin at any element (kShifted). A group then walks only over such rows as begin at the same place of 16
// bytes, so that its threads keep their columns. It has weights of its own beside its columns, and 0 for what lies
// around the row.
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

// Dynamic shared memory of a block: the weights, then the rings, of rows of so many elements with what lies around
// them.
template <class T, int kStages, bool kShifted>
constexpr size_t norm_backward_shared(size_t elements, size_t groups) {
  return (kShifted ? groups : 1) * elements * 4 + groups * RowRing<T, 2, kStages, false>::bytes(elements);
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

// The same where groups have other columns than the first: `column` of each pack.
template <int kPacks, int W, class Column>
__device__ __forceinline__ void write_shifted_share(float* shares, const float (&mine)[kPacks][W], float* left,
                                                    const Group<true>& group, unsigned groups, unsigned hidden,
                                                    const Column& column) {
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int e = 0; e < W; ++e) {
        const int j = static_cast<int>(column(p)) + e;
        if (j >= 0 && j < static_cast<int>(hidden)) f(j, mine[p][e]);
      }
    }
  };
  __syncthreads();
  if (group.index() != 0) each([&](int j, float sum) { left[(group.index() - 1) * hidden + j] = sum; });
  __syncthreads();
  if (group.index() != 0) return;
  each([&](int j, float sum) {
    for (unsigned g = 1; g < groups; ++g) sum += left[(g - 1) * hidden + j];
    shares[int64_t{blockIdx.x} * hidden + j] = sum;
  });
}

// Each thread has kPacks times 16 bytes of a row, which it reads from shared memory in both passes over it.
template <class T, Norm kNorm, int kPacks, int kMaxThreads, int kStages, bool kBulk, bool kShifted>
__global__ void __launch_bounds__(kMaxThreads, 1)
    norm_backward_kernel(const __grid_constant__ NormBackwardRows<T> args) {
  static_assert(!kBulk || kStages > 1, "a slot is refilled one row late");
  constexpr int W = kLanes<T>;
  using Column = std::conditional_t<kShifted, int, unsigned>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ GroupParts parts;
  __shared__ uint64_t arrived[kMaxWarps * kStages];
  Group<true> group(args.group_threads, parts);
  const unsigned groups = blockDim.x / group.threads();
  const auto hidden = static_cast<Column>(args.hidden);
  const auto first_row = [&] { return static_cast<int>(group.index() * gridDim.x + blockIdx.x); };
  const Column lead = kShifted ? lead_of(args.x.at(first_row())) : 0;
  const auto column = [&](int p) { return static_cast<Column>((group.thread() + p * group.threads()) * W) - lead; };
  // Weight 4·q + k of pack j stands at [q][j][k]: neighbouring threads read neighbouring 16 bytes.
  const unsigned packs = kShifted ? static_cast<unsigned>(most_vectors(hidden, W)) : hidden / W;
  const unsigned elements = kShifted ? packs * W : hidden;  // with what may lie around a row
  const auto rings = [&] { return shared + (kShifted ? groups * elements : elements) * 4; };
  auto* weights = reinterpret_cast<float4*>(shared) + (kShifted ? group.index() * packs * (W / 4) : 0);
  const auto weights_of = [&](int p, int q) {
    return reinterpret_cast<const float*>(weights + q * packs + group.thread() + p * group.threads());
  };
  using Ring = RowRing<T, 2, kStages, kBulk, kShifted>;
  Ring ring(group, rings() + group.index() * Ring::bytes(elements), arrived + group.index() * kStages, elements);
  __syncthreads();
  wait_for_previous();

  const int tokens = static_cast<int>(args.tokens), walkers = static_cast<int>(gridDim.x * groups);
  int i = first_row();
  const int step = kShifted ? walk_step(i, walkers, W) : walkers;
  const auto row_of = [&](int t, int row) { return t == 0 ? args.x.at(row) : args.dy.at(row); };
  const auto bounds_of = [&](int t) { return Bounds<T>(t == 0 ? args.x : args.dy, args.tokens, args.hidden); };
  const auto fetch = [&](int stage, int row) {
    ring.fetch(stage, row < tokens, [&](int t) {
      if constexpr (kShifted) {
        const int vectors = RowShare{0, hidden, lead}.vectors(W);
        return bounds_of(t).copied(row_of(t, row) - lead, vectors);
      } else {
        return row_of(t, row);
      }
    });
  };
#pragma unroll
  for (int s = 0; s < kStages; ++s) fetch(s, i + s * step);
  const unsigned first_pack = kShifted ? group.thread() : threadIdx.x;
  for (unsigned j = first_pack; j < packs; j += kShifted ? group.threads() : blockDim.x) {
    float weight[W];
    if constexpr (kShifted) {
      read_parameters_anywhere<T>(args.weight, static_cast<int>(j * W) - lead, hidden, weight);
    } else {
      read_parameters<T>(args.weight, j * W, weight);
    }
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
  int walked = 0;
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
        if (column(p) >= hidden) continue;
        const T* vector = args.dresidual.at(i) + column(p);
        if (!kShifted || is_whole<W>(column(p), 0, hidden) ||
            Bounds<T>(args.dresidual, args.tokens, args.hidden).hold(vector)) {
          above[p] = load_raw_once(vector);
        } else {
          above[p] = load_some<W>(args.dresidual.at(i), column(p), 0, hidden, 0.0f);
        }
      }
    }
    ring.wait(stage, phase);
    const T *x_slot = ring.slot(stage, 0) + lead, *dy_slot = ring.slot(stage, 1) + lead;
    if constexpr (kShifted) {  // each thread, what it will read itself
      ++walked;
#pragma unroll 1
      for (int p = 0; p < kPacks; ++p) {
        const int j = column(p);
        if (j >= hidden || is_whole<W>(j, 0, hidden)) continue;
        for (int t = 0; t < 2; ++t) {
          bounds_of(t).mend(ring.slot(stage, t) + lead + j, row_of(t, i), j, 0, hidden, 0.0f);
        }
        if constexpr (kBulk) written_for_copies();
      }
    }

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
        if constexpr (kShifted) {
          store_within<W>(args.dx.at(i), column(p), 0, hidden, dx);
        } else {
          store<W>(args.dx.at(i) + column(p), dx);
        }
      }
    }
    if constexpr (!kBulk) fetch(stage, i + kStages * step);
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
  // A group that had one row less than the first waits once more: compute-sanitizer's racecheck compares how many
  // barriers threads have passed, whatever their numbers. Walks of shifted rows may differ by more.
  if constexpr (kShifted) {
    for (; walked < longest_walk(walkers, W, tokens); ++walked) group.barrier();
  } else {
    if (i - static_cast<int>(group.index() * gridDim.x) < tokens) group.barrier();
  }
  let_next_begin();

  auto* left = reinterpret_cast<float*>(rings());  // the rings are empty
  const auto write = [&](float* shares, const float(&mine)[kPacks][W]) {
    if constexpr (kShifted) {
      write_shifted_share(shares, mine, left, group, groups, hidden, column);
    } else {
      write_share(shares, mine, left, group, groups, hidden);
    }
  };
  if (args.dweight != nullptr) write(args.dweight, dweight);
  if constexpr (kNorm == Norm::layer) {
    if (args.dbias != nullptr) write(args.dbias, dbias);
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
