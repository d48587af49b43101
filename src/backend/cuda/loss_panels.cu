// The loss of rows whose logits come panel by panel, and the gradient from what is already known of a row.
#include "backend/cuda/loss.cuh"

namespace tigon::cuda {

namespace {

template <class T, bool kPlain>
struct PanelStats : LossOp<T, kPlain> {
  using Base = LossOp<T, kPlain>;
  using Base::batch;
  using Base::first_class;
  static constexpr bool kTeams = false;  // panels are short

  template <int W>
  __device__ __forceinline__ void skip(int64_t, int, int) const {}

  template <class Row, class Out>
  __device__ __forceinline__ void run(Team& team, int64_t, const LossRow& where, float peeked, const Row& row,
                                      SearchShared& shared, Out&) const {
    RowStats found = search_row<T, kPlain>(batch, team, row, first_class, shared);
    Base::keep_target(where, row, peeked);
    if (!team.first_thread()) return;
    RowStats& stats = batch.stats[where.token];
    if (first_class > 0) {
      found.soft = JoinMaxSum()(stats.soft, found.soft);
      found.weighted += stats.weighted;
      const Best best = JoinBest()({stats.best, stats.best_at}, {found.best, found.best_at});
      found.best = best.value;
      found.best_at = best.at;
    }
    stats.keep(found);
  }
};

// Rows by blockIdx.x, parts of a row by blockIdx.y.
template <class T, int W, bool kPlain>
__global__ void __launch_bounds__(kRowThreads)
    panel_gradient_kernel(const LossBatch batch, int64_t first, int64_t rows, Rows<const T> logits, int64_t columns,
                          int64_t first_class, const float* lse, Rows<T> dlogits) {
  const int64_t step = int64_t{gridDim.y} * blockDim.x * W;
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    const LossRow where = batch.row_at(first + i);
    const int64_t token = where.token;
    const T* x = logits.at(i);
    T* to = dlogits.at(i);
    const int64_t begin = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W;
    if (token < 0) {
      const float zeros[W] = {};
      for (int64_t j = begin; j < columns; j += step) store<W>(to + j, zeros);
      continue;
    }
    const MaxSum soft = lse != nullptr ? MaxSum{lse[token], 1.0f} : batch.stats[token].soft;
    const RowGradient<ExpFrom<T>> gradient(batch, token, where.target, soft.shift(), soft.sum);
    for (int64_t j = begin; j < columns; j += step) {
      float v[W];
      load<W>(x + j, v);
      gradient.template apply<kPlain>(batch, static_cast<int>(first_class + j), v);
#pragma unroll
      for (int k = 1; k < W; ++k) {
        if (j + k >= columns) v[k] = 0.0f;  // the padding of a row: products read it
      }
      store<W>(to + j, v);
    }
  }
}

}  // namespace

void loss_panel_stats(const Context& ctx, const LossBatch& batch, int64_t first, const Tensor& logits,
                      int64_t first_class, bool padded) {
  if (logits.elements() == 0) return;
  dispatch("cross entropy", logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = [&](const auto& op) {
      run_rows<T>(ctx, "cross entropy", op, logits, rows_aligned(logits), padded);
    };
    const auto class_of_first = static_cast<int>(first_class);
    if (batch.plain()) {
      run(PanelStats<T, true>{{batch, first, class_of_first}});
    } else {
      run(PanelStats<T, false>{{batch, first, class_of_first}});
    }
  });
}

void loss_panel_gradient(const Context& ctx, const LossBatch& batch, int64_t first, const Tensor& logits,
                         int64_t first_class, const float* lse, const Tensor& dlogits, bool padded) {
  const int64_t rows = logits.sizes[0], columns = logits.sizes[1];
  if (logits.elements() == 0) return;
  dispatch("cross entropy", logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto launch = [&](auto w) {
      const int64_t vectors = divide_up(columns, w), threads = power_of_two_for(divide_up(vectors, 4), 32, kRowThreads);
      const dim3 grid(static_cast<unsigned>(std::min(rows, kMaxGridX)),
                      static_cast<unsigned>(std::min(divide_up(vectors, 4 * threads), kMaxGridY)));
      const auto kernel =
          batch.plain_gradient() ? panel_gradient_kernel<T, w, true> : panel_gradient_kernel<T, w, false>;
      kernel<<<grid, static_cast<unsigned>(threads), 0, stream_of(ctx)>>>(
          batch, first, rows, rows_of<const T>(logits), columns, first_class, lse, rows_of<T>(dlogits));
    };
    if (rows_aligned(logits, dlogits) && (columns % kLanes<T> == 0 || padded)) {
      launch(std::integral_constant<int, kLanes<T>>());
    } else {
      launch(std::integral_constant<int, 1>());
    }
  });
  check_launch("cross entropy");
}

}  // namespace tigon::cuda
