#pragma once

#include "backend/cuda/group.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm_math.cuh"
#include "backend/cuda/row_edge.cuh"

// Forward of the norms: a group of threads per row. The row is read once, kept in registers as stored, and written
// once. Rows that begin at any element are read in the vectors around them, with 0 for what is not theirs.
namespace tigon::cuda {

template <class T>
struct NormForwardRows {
  Rows<const T> x, residual;
  Rows<T> residual_out, y;
  Parameter weight, bias;
  float* mean;
  float* rstd;
  int64_t tokens, hidden;
  unsigned group_threads;
  float eps;
  bool round_early;
};

// How a parameter row is read. early: asked for with the row's own elements, so that it is there when the sums are.
// late: when it is needed, which takes fewer registers. Both need it to be there and of the rows' type; any does not.
// shifted: for rows that begin at any element, all of them at the same place of 16 bytes; any parameter row will do.
enum class Reading { early, late, any, shifted };

template <class T, int kPacks, Reading kReading>
class HeldParameter {
  static constexpr int W = kLanes<T>;

 public:
  template <class Column>
  __device__ __forceinline__ HeldParameter(const Parameter& p, const Column& column, unsigned hidden)
      : p_(p), hidden_(hidden) {
    if constexpr (kReading == Reading::early) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (column(k) < hidden) raw_[k] = load_raw<W>(static_cast<const T*>(p.data) + column(k));
      }
    }
  }
  __device__ __forceinline__ void get(int pack, unsigned column, float (&out)[W]) {
    if constexpr (kReading == Reading::any) return read_parameters<T>(p_, column, out);
    if constexpr (kReading == Reading::shifted) {
      return read_parameters_anywhere<T>(p_, static_cast<int>(column), static_cast<int>(hidden_), out);
    }
    if constexpr (kReading == Reading::early) {
      keep_packed(raw_[pack]);
      unpack<T, W>(raw_[pack], out);
    } else {
      load<W>(static_cast<const T*>(p_.data) + column, out);
    }
#pragma unroll
    for (int e = 0; e < W; ++e) out[e] += p_.offset;
  }

 private:
  const Parameter& p_;
  unsigned hidden_;
  Raw<T, W> raw_[kReading == Reading::early ? kPacks : 1];
};

// Each thread holds kPacks times 16 bytes of the row.
template <class T, Norm kNorm, int kPacks, int kMaxThreads, int kMinBlocks, Reading kReading>
__global__ void __launch_bounds__(kMaxThreads, kMinBlocks)
    norm_forward_kernel(const __grid_constant__ NormForwardRows<T> args) {
  constexpr int W = kLanes<T>;
  constexpr bool kShifted = kReading == Reading::shifted;
  using Column = std::conditional_t<kShifted, int, unsigned>;
  __shared__ GroupParts parts;
  Group<false> group(args.group_threads, parts);
  const auto hidden = static_cast<Column>(args.hidden);
  const unsigned groups = blockDim.x / group.threads();
  const float share = 1.0f / static_cast<float>(hidden);
  wait_for_previous();
  let_next_begin();

  for (int64_t i = int64_t{blockIdx.x} * groups + group.index(); i < args.tokens; i += int64_t{gridDim.x} * groups) {
    const Column lead = kShifted ? lead_of(args.x.at(i)) : 0;
    const auto column = [&](int p) { return static_cast<Column>((group.thread() + p * group.threads()) * W) - lead; };
    const auto whole = [&](int p) { return !kShifted || is_whole<W>(column(p), 0, hidden); };
    const auto read = [&](const T* from, Raw<T, W>(&to)[kPacks]) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) < hidden && whole(p)) to[p] = load_raw_once(from + column(p));
      }
      if constexpr (kShifted) {  // when the whole ones are on their way
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
          if (column(p) < hidden && !whole(p)) to[p] = load_some<W>(from, column(p), 0, hidden, 0.0f);
        }
      }
    };
    const auto write = [&](T* to, int p, const float(&values)[W]) {
      if constexpr (kShifted) {
        store_within<W>(to, column(p), 0, hidden, values);
      } else {
        store<W>(to + column(p), values);
      }
    };
    Raw<T, W> row[kPacks];
    read(args.x.at(i), row);
    HeldParameter<T, kPacks, kReading> weights(args.weight, column, hidden);
    if constexpr (kNorm == Norm::add_rms) {
      Raw<T, W> residual[kPacks];
      read(args.residual.at(i), residual);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) >= hidden) continue;
        float x[W], r[W];
        unpack<T, W>(row[p], x);
        unpack<T, W>(residual[p], r);
#pragma unroll
        for (int e = 0; e < W; ++e) x[e] += r[e];
        row[p] = pack<T, W>(x);
        if constexpr (kShifted) {
          write(args.residual_out.at(i), p, x);
        } else {
          store_raw<W>(args.residual_out.at(i) + column(p), row[p]);
        }
        keep_packed(row[p]);
      }
    }

    float mean = 0.0f;
    if constexpr (kNorm == Norm::layer) {
      float total = 0.0f;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (column(p) >= hidden) continue;
        float x[W];
        unpack<T, W>(row[p], x);
#pragma unroll
        for (int e = 0; e < W; ++e) total += x[e];
      }
      mean = group.sum(total) * share;
    }
    float squares = 0.0f;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= hidden) continue;
      keep_packed(row[p]);
      float x[W];
      unpack<T, W>(row[p], x);
      if constexpr (kShifted && kNorm == Norm::layer) {
        if (!whole(p)) {  // what is not the row's does not vary
#pragma unroll
          for (int e = 0; e < W; ++e) x[e] = column(p) + e >= 0 && column(p) + e < hidden ? x[e] : mean;
        }
      }
#pragma unroll
      for (int e = 0; e < W; ++e) squares = fmaf(x[e] - mean, x[e] - mean, squares);
    }
    const float rstd = rsqrtf(fmaf(group.sum(squares), share, args.eps));
    if (group.thread() == 0) {
      if (args.mean != nullptr) args.mean[i] = mean;
      if (args.rstd != nullptr) args.rstd[i] = rstd;
    }

#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column(p) >= hidden) continue;
      keep_packed(row[p]);
      float y[W], weight[W];
      unpack<T, W>(row[p], y);
      weights.get(p, column(p), weight);
#pragma unroll
      for (int e = 0; e < W; ++e) y[e] = normal_of<kNorm>(y[e], mean, rstd);
      if (kNorm != Norm::layer && args.round_early) round_all<T>(y);
      if constexpr (kNorm == Norm::layer) {
        float bias[W];
        constexpr auto kLate = kReading == Reading::early ? Reading::late : kReading;
        HeldParameter<T, kPacks, kLate>(args.bias, column, hidden).get(p, column(p), bias);
#pragma unroll
        for (int e = 0; e < W; ++e) y[e] = fmaf(y[e], weight[e], bias[e]);
      } else {
#pragma unroll
        for (int e = 0; e < W; ++e) y[e] *= weight[e];
      }
      write(args.y.at(i), p, y);
    }
  }
}

}  // namespace tigon::cuda
