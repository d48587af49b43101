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

  template <int W, bool kShifted>
  __device__ __forceinline__ void skip(int64_t, const RowShare&) const {}

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

// Rows by blockIdx.x, parts of a row by blockIdx.y. kShifted: rows may begin at any element.
template <class T, int W, bool kPlain, bool kShifted>
__global__ void __launch_bounds__(kRowThreads)
    panel_gradient_kernel(const LossBatch batch, int64_t first, int64_t rows, Rows<const T> logits, int64_t columns,
                          int64_t first_class, const float* lse, Rows<T> dlogits) {
  const int64_t step = int64_t{gridDim.y} * blockDim.x * W;
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    const LossRow where = batch.row_at(first + i);
    const int64_t token = where.token;
    const T* x = logits.at(i);
    T* to = dlogits.at(i);
    const int64_t begin = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W - (kShifted ? lead_of(x) : 0);
    const auto put = [&](int64_t j, const float(&v)[W]) {
      if constexpr (kShifted) {
        store_within<W>(to, static_cast<int>(j), 0, static_cast<int>(columns), v);
      } else {
        store<W>(to + j, v);
      }
    };
    if (token < 0) {
      const float zeros[W] = {};
      for (int64_t j = begin; j < columns; j += step) put(j, zeros);
      continue;
    }
    const MaxSum soft = lse != nullptr ? MaxSum{lse[token], 1.0f} : batch.stats[token].soft;
    const RowGradient<ExpFrom<T>> gradient(batch, token, where.target, soft.shift(), soft.sum);
    for (int64_t j = begin; j < columns; j += step) {
      float v[W];
      if constexpr (kShifted) {
        unpack<T, W>(load_within<W>(x, static_cast<int>(j), 0, static_cast<int>(columns), 0.0f), v);
      } else {
        load<W>(x + j, v);
      }
      gradient.template apply<kPlain, kShifted>(batch, static_cast<int>(first_class + j), v);
#pragma unroll
      for (int k = 1; k < W; ++k) {
        if (j + k >= columns) v[k] = 0.0f;  // the padding of a row: products read it
      }
      put(j, v);
    }
  }
}

}  // namespace

void loss_panel_stats(const Context& ctx, const LossBatch& batch, int64_t first, const Tensor& logits,
                      int64_t first_class, bool padded) {
  if (logits.elements() == 0) return;
  dispatch("cross entropy", logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = [&](const auto& op) { run_rows<T>(ctx, "cross entropy", op, logits, reach_of(padded, logits)); };
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
    const auto launch = [&](auto w, auto shifted) {
      const int64_t vectors = shifted ? most_vectors(columns, w) : divide_up(columns, w);
      const int64_t threads = row_threads(vectors);
      const dim3 grid(static_cast<unsigned>(std::min(rows, kMaxGridX)),
                      static_cast<unsigned>(std::min(divide_up(vectors, 4 * threads), kMaxGridY)));
      const auto kernel = batch.plain_gradient() ? panel_gradient_kernel<T, w, true, shifted>
                                                 : panel_gradient_kernel<T, w, false, shifted>;
      kernel<<<grid, static_cast<unsigned>(threads), 0, stream_of(ctx)>>>(
          batch, first, rows, rows_of<const T>(logits), columns, first_class, lse, rows_of<T>(dlogits));
    };
    constexpr std::integral_constant<int, 1> kOne;
    constexpr std::integral_constant<int, kLanes<T>> kVector;
    switch (reach_of(padded, logits, dlogits)) {
      case Reach::vectors: return launch(kVector, std::false_type());
      case Reach::shifted: return launch(kVector, std::true_type());
      case Reach::elements: return launch(kOne, std::false_type());
    }
  });
  check_launch("cross entropy");
}

}  // namespace tigon::cuda
