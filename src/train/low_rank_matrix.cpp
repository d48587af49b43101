#include "train/low_rank_matrix.hpp"

#include <cmath>

#include "tigon/ops/elementary.hpp"
#include "tigon/ops/low_rank.hpp"

namespace tigon {

// Random numbers of their own: those of the run's seed make weights and round states.
static constexpr uint64_t kProjections = 0x4150'4F4C'4C4F'0001;

OwnedTensor LowRankUpdate::in_small_space(const char* name, const Matrix& matrix, DType dtype,
                                          bool channels_first) const {
  const int64_t channels = matrix.channels();
  return {ctx,
          name,
          dtype,
          {channels_first ? channels : rank(), channels_first ? rank() : channels},
          MemoryClass::workspace};
}

void LowRankUpdate::draw(const Matrix& matrix, const Tensor& y, double deviation) const {
  ops::normal(ctx, {.y = y,
                    .deviation = deviation,
                    .seed = train.seed ^ kProjections,
                    .step = static_cast<uint32_t>(projection_number()),
                    .tensor_id = static_cast<uint32_t>(parameter),
                    .first_element = matrix.first_element});
}

double LowRankUpdate::correction() const {
  const auto step = static_cast<double>(args.adam_step);
  return (1 - std::pow(train.optimizer.beta1, step)) / std::sqrt(1 - std::pow(train.optimizer.beta2, step));
}

// AdamW of a parameter that is zero, whose lr and eps take the corrections back.
void LowRankUpdate::adam(const Matrix& matrix, const Tensor& projected, const Tensor& direction) const {
  const OptimizerOptions& options = train.optimizer;
  const int64_t n = direction.elements();
  ops::unary(ctx, {.x = direction, .y = direction, .alpha = 0});
  ops::adamw(ctx, {.param = direction.reshape({n}),
                   .grad = projected.reshape({n}),
                   .m = matrix.m,
                   .v = matrix.v,
                   .grad_scale = grad_scale,
                   .lr = -correction(),
                   .beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .eps = options.eps / std::sqrt(1 - std::pow(options.beta2, static_cast<double>(args.adam_step))),
                   .step = args.adam_step,
                   .rounding = train.precision.rounding,
                   .seed = train.seed,
                   .tensor_id = static_cast<uint32_t>(parameter),
                   .first_element = matrix.first_state});
}

void LowRankUpdate::apply(const Matrix& matrix, int64_t first_row, const Tensor& update, const Tensor& factors,
                          double gain) const {
  const int64_t end = first_row + update.sizes[0];
  ops::scaled_update(ctx, {.param = matrix.weight.slice(0, first_row, end),
                           .grad = update,
                           .factors = factors,
                           .param_copy = matrix.copy.present() ? matrix.copy.slice(0, first_row, end) : Tensor{},
                           .columns = matrix.wide(),
                           .lr = gain * args.lr / correction(),
                           .decay = decays ? args.lr * train.optimizer.weight_decay : 0.0,
                           .rounding = train.precision.rounding,
                           .seed = train.seed,
                           .step = args.adam_step,
                           .tensor_id = static_cast<uint32_t>(parameter),
                           .first_element = matrix.first_element + first_row * matrix.columns()});
}

}  // namespace tigon
