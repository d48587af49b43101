// The loss of rows whose logits are all there: one read, and one write of the gradient.
#include "backend/cuda/loss.cuh"

namespace tigon::cuda {

namespace {

template <class T, int W, int NV, bool kPlain>
__global__ void __launch_bounds__(kRowThreads, kPlain ? row_blocks_for(NV) : 1)
    loss_rows_kernel(unsigned blocks, const LossBatch batch, int64_t first, Rows<const T> logits, Rows<T> dlogits) {
  using Search = RowSearch<T, kPlain, W, NV>;
  __shared__ typename Search::Shared shared;
  const Team team(blocks);
  const int64_t i = team.row(), token = batch.token_of(first + i);
  const int64_t y = token >= 0 ? batch.target_of(token) : -1;
  if (token < 0 || !batch.counts(y)) {
    if (dlogits.data == nullptr) return;
    const float zeros[W] = {};
    const int64_t step = int64_t{blocks} * blockDim.x * W;
    for (int64_t j = (int64_t{team.rank()} * blockDim.x + threadIdx.x) * W; j < batch.vocab; j += step) {
      store<W>(dlogits.at(i) + j, zeros);
    }
    return;  // the whole team alike
  }
  const T* x = logits.at(i);
  const HeldRow<T, W, NV> row(x, batch.vocab, team);
  const RowStats stats = Search::run(batch, team, row, x, batch.vocab, 0, y, shared);
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

}  // namespace

void loss_rows(const Context& ctx, const LossBatch& batch, int64_t first, const Tensor& logits, const Tensor& dlogits,
               bool padded) {
  if (logits.elements() == 0) return;
  dispatch("cross entropy", logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool aligned = rows_aligned(logits, dlogits);
    with_row_plan<T>(ctx, logits.sizes[0], batch.vocab, aligned, padded, [&](auto w, auto nv, const RowPlan& plan) {
      const auto kernel = batch.plain() ? loss_rows_kernel<T, w, nv, true> : loss_rows_kernel<T, w, nv, false>;
      launch_rows(ctx, "cross entropy", plan, kernel, plan.blocks, batch, first, rows_of<const T>(logits),
                  rows_of<T>(dlogits));
    });
  });
}

}  // namespace tigon::cuda
