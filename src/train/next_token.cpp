#include "train/next_token.hpp"

#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/elementary.hpp"
#include "tigon/ops/linear.hpp"

namespace tigon {

OwnedTensor next_token_logits(const Context& ctx, const ModelConfig& model, const ParameterList& parameters,
                              WeightSource& weights, Stream stream, std::span<const int64_t> rows) {
  const DType dtype = stream.out.view.dtype;
  const auto count = static_cast<int64_t>(rows.size());
  const auto make = [&](const char* name, DType type, int64_t columns) {
    return OwnedTensor(ctx, name, type, {count, columns}, MemoryClass::activations);
  };
  OwnedTensor mid = make("last.mid", dtype, model.hidden), out = make("last.out", dtype, model.hidden);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    const auto copy = [&](const OwnedTensor& from, const OwnedTensor& to) {
      ops::unary(ctx, {.x = from.view.slice(0, row, row + 1), .y = to.view.slice(0, i, i + 1)});
    };
    copy(stream.mid, mid);
    copy(stream.out, out);
  }
  stream = {};
  const OwnedTensor normed = make("last.normed", dtype, model.hidden), rstd = make("last.rstd", DType::f32, 1);
  const WeightLease end = weights.acquire(ctx, parameters.end_part(), -1);
  ops::add_rmsnorm_forward(ctx, {.x = out,
                                 .residual = mid,
                                 .weight = end[parameters.final_norm],
                                 .residual_out = mid,
                                 .y = normed,
                                 .rstd = rstd.view.reshape({count}),
                                 .eps = model.norm_eps,
                                 .offset = model.norm_offset,
                                 .casting = model.norm_casting});
  const bool own_head = parameters.head_part() == parameters.end_part();
  const WeightLease lease = own_head ? end.again() : weights.acquire(ctx, parameters.head_part(), -1);
  OwnedTensor logits = make("logits", dtype, model.vocab);
  ops::linear_forward(ctx, {.x = normed, .weight = lease[parameters.head], .y = logits});
  return logits;
}

}  // namespace tigon
