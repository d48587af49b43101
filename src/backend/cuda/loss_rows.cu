// The loss of rows whose logits are all there: one read, and one write of the gradient.
#include "backend/cuda/loss.cuh"

namespace tigon::cuda {

namespace {

template <class T, bool kPlain>
struct LossRows : LossOp<T, kPlain> {
  using Base = LossOp<T, kPlain>;
  using Base::batch;

  Rows<T> dlogits;

  template <int W, bool kShifted>
  __device__ __forceinline__ void skip(int64_t i, const RowShare& share) const {
    if (dlogits.data == nullptr) return;
    const float zeros[W] = {};
    const int step = static_cast<int>(blockDim.x) * W;
    for (int j = share.first() + static_cast<int>(threadIdx.x) * W; j < share.end; j += step) {
      if constexpr (kShifted) {
        store_within<W>(dlogits.at(i), j, share.begin, share.end, zeros);
      } else {
        store<W>(dlogits.at(i) + j, zeros);
      }
    }
  }

  template <class Row, class Out>
  __device__ __forceinline__ void run(Team& team, int64_t i, const LossRow& where, float peeked, const Row& row,
                                      SearchShared& shared, Out& out) const {
    const RowStats stats = search_row<T, kPlain>(batch, team, row, 0, shared);
    Base::keep_target(where, row, peeked);
    if (team.first_thread() && batch.stats != nullptr) batch.stats[where.token].keep(stats);
    if (dlogits.data == nullptr) return;
    out.begin();  // batch.factors
    const RowGradient<RowExponential<T, kPlain>> gradient(batch, where.token, where.target, stats.soft.shift(),
                                                          stats.soft.sum);
    out.write(row, dlogits.at(i), [&](int j, auto& v) { gradient.template apply<kPlain, Row::kShifted>(batch, j, v); });
  }
};

}  // namespace

bool loss_rows(const Context& ctx, const LossBatch& batch, int64_t first, const Tensor& logits, const Tensor& dlogits,
               bool padded, bool just_counted) {
  if (logits.elements() == 0) return false;
  bool next_may_begin = false;
  dispatch("cross entropy", logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = [&](const auto& op) {
      next_may_begin = run_rows<T>(ctx, "cross entropy", op, logits, reach_of(padded, logits, dlogits), just_counted);
    };
    if (batch.plain()) {
      run(LossRows<T, true>{{batch, first, 0}, rows_of<T>(dlogits)});
    } else {
      run(LossRows<T, false>{{batch, first, 0}, rows_of<T>(dlogits)});
    }
  });
  return next_may_begin;
}

}  // namespace tigon::cuda
