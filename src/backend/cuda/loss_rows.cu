// The loss of rows whose logits are all there: one read, and one write of the gradient.
#include "backend/cuda/loss.cuh"

namespace tigon::cuda {

namespace {

template <class T, bool kPlain>
struct LossRows {
  using Shared = SearchShared;
  static constexpr bool kLight = kPlain;

  LossBatch batch;
  int64_t first;
  Rows<const T> logits;
  Rows<T> dlogits;

  __device__ __forceinline__ bool wanted(int64_t i) const {
    const int64_t token = batch.token_of(first + i);
    return token >= 0 && batch.counts(batch.target_of(token));
  }

  template <int W>
  __device__ __forceinline__ void skip(int64_t i, int64_t begin, int64_t end) const {
    if (dlogits.data == nullptr) return;
    const float zeros[W] = {};
    for (int64_t j = begin + int64_t{threadIdx.x} * W; j < end; j += int64_t{blockDim.x} * W) {
      store<W>(dlogits.at(i) + j, zeros);
    }
  }

  template <int W, int NV>
  __device__ __forceinline__ void run(const Team& team, int64_t i, const HeldRow<T, W, NV>& row, Shared& shared) const {
    const int64_t token = batch.token_of(first + i), y = batch.target_of(token);
    const RowStats stats = search_row<T, kPlain>(batch, team, row, logits.at(i), batch.vocab, 0, y, shared);
    if (team.first_thread() && batch.stats != nullptr) batch.stats[token] = stats;
    if (dlogits.data == nullptr) return;
    const float shift = stats.soft.shift(), sum = stats.soft.sum;
    const RowGradient gradient(batch, token, y, shift, sum, shift + logf(sum));
    T* to = dlogits.at(i);
    row.for_each([&](int64_t j, float(&v)[W]) {
      gradient.template apply<T, kPlain>(batch, j, v);
      store<W>(to + j, v);
    });
  }
};

}  // namespace

void loss_rows(const Context& ctx, const LossBatch& batch, int64_t first, const Tensor& logits, const Tensor& dlogits,
               bool padded) {
  if (logits.elements() == 0) return;
  dispatch("cross entropy", logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = [&](const auto& op) {
      run_rows<T>(ctx, "cross entropy", op, logits, rows_aligned(logits, dlogits), padded);
    };
    if (batch.plain()) {
      run(LossRows<T, true>{batch, first, rows_of<const T>(logits), rows_of<T>(dlogits)});
    } else {
      run(LossRows<T, false>{batch, first, rows_of<const T>(logits), rows_of<T>(dlogits)});
    }
  });
}

}  // namespace tigon::cuda
