#include "train/low_rank.hpp"

#include <algorithm>
#include <cmath>

#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/elementary.hpp"
#include "tigon/ops/linear.hpp"
#include "tigon/ops/low_rank.hpp"

namespace tigon {

namespace {

// Random numbers of their own: those of the run's seed make weights and round states.
constexpr uint64_t kProjections = 0x4150'4F4C'4C4F'0001;

// One matrix of a parameter. Its shorter side is projected to the rank; the longer one are its channels.
struct Matrix {
  Tensor weight, gradient, copy;  // [rows, columns]
  Tensor m, v;                    // [channels·rank], flat
  Tensor last;                    // [1]
  int64_t first_element = 0;      // of the parameter
  int64_t first_state = 0;        // of m and v

  int64_t rows() const { return gradient.sizes[0]; }
  int64_t columns() const { return gradient.sizes[1]; }
  bool wide() const { return rows() < columns(); }
  int64_t channels() const { return std::max(rows(), columns()); }
  int64_t shorter() const { return std::min(rows(), columns()); }
};

class LowRankUpdate {
 public:
  LowRankUpdate(const Context& ctx, const TrainConfig& train, uint32_t tensor_id, bool decays, const Tensor& grad_scale,
                const UpdateArgs& args)
      : ctx_(ctx),
        train_(train),
        options_(train.optimizer),
        rank_(rank_of(options_)),
        tensor_id_(tensor_id),
        decays_(decays),
        grad_scale_(grad_scale),
        args_(args) {}

  void update(const Matrix& matrix) const {
    const OwnedTensor projected = in_small_space("projected gradient", matrix);
    project(matrix, projected);
    const OwnedTensor direction = in_small_space("direction", matrix);
    adam(matrix, projected, direction);
    const OwnedTensor factors(ctx_, "factors of channels", DType::f32, {matrix.channels()}, MemoryClass::workspace);
    ops::apollo_factors(ctx_, {.projected = projected,
                               .direction = direction,
                               .grad = matrix.gradient,
                               .grad_scale = grad_scale_,
                               .last = matrix.last,
                               .factors = factors,
                               .columns = matrix.wide(),
                               .whole = options_.kind == Optimizer::apollo_mini,
                               .gain = std::sqrt(scale_of(options_))});
    ops::scaled_update(ctx_, {.param = matrix.weight,
                              .grad = matrix.gradient,
                              .factors = factors,
                              .param_copy = matrix.copy,
                              .columns = matrix.wide(),
                              .lr = args_.lr / correction(),
                              .decay = decays_ ? args_.lr * options_.weight_decay : 0.0,
                              .rounding = train_.precision.rounding,
                              .seed = train_.seed,
                              .step = args_.adam_step,
                              .tensor_id = tensor_id_,
                              .first_element = matrix.first_element});
  }

 private:
  OwnedTensor in_small_space(const char* name, const Matrix& matrix) const {
    return {ctx_, name, DType::f32, {matrix.channels(), rank_}, MemoryClass::workspace};
  }

  // The gradient times a random matrix, which is drawn again from the seed in every step: [channels, rank].
  void project(const Matrix& matrix, const Tensor& projected) const {
    const bool wide = matrix.wide();
    const int64_t rows = wide ? matrix.shorter() : rank_, columns = wide ? rank_ : matrix.shorter();
    const OwnedTensor random(ctx_, "random projection", matrix.gradient.dtype, {rows, columns}, MemoryClass::workspace);
    ops::normal(ctx_, {.y = random,
                       .deviation = 1 / std::sqrt(static_cast<double>(rank_)),
                       .seed = train_.seed ^ kProjections,
                       .step = static_cast<uint32_t>((args_.adam_step - 1) / gap_of(options_)),
                       .tensor_id = tensor_id_,
                       .first_element = matrix.first_element});
    if (wide) {
      ops::linear_backward(ctx_, {.dy = matrix.gradient, .x = random, .dweight = projected});
    } else {
      ops::linear_forward(ctx_, {.x = matrix.gradient, .weight = random, .y = projected});
    }
  }

  // By how much a step is too long as long as m and v begin at zero: step_size = lr·sqrt(1 − β2^t) / (1 − β1^t).
  double correction() const {
    const auto step = static_cast<double>(args_.adam_step);
    return (1 - std::pow(options_.beta1, step)) / std::sqrt(1 - std::pow(options_.beta2, step));
  }

  // direction = m / (sqrt(v) + eps), not corrected: AdamW of a parameter that is zero, which takes the corrections back
  // by its lr and eps.
  void adam(const Matrix& matrix, const Tensor& projected, const Tensor& direction) const {
    const int64_t n = direction.elements();
    ops::unary(ctx_, {.x = direction, .y = direction, .alpha = 0});
    ops::adamw(ctx_,
               {.param = direction.reshape({n}),
                .grad = projected.reshape({n}),
                .m = matrix.m,
                .v = matrix.v,
                .grad_scale = grad_scale_,
                .lr = -correction(),
                .beta1 = options_.beta1,
                .beta2 = options_.beta2,
                .eps = options_.eps / std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(args_.adam_step))),
                .step = args_.adam_step,
                .rounding = train_.precision.rounding,
                .seed = train_.seed,
                .tensor_id = tensor_id_,
                .first_element = matrix.first_state});
  }

  const Context& ctx_;
  const TrainConfig& train_;
  const OptimizerOptions& options_;
  const int64_t rank_;
  const uint32_t tensor_id_;
  const bool decays_;
  const Tensor& grad_scale_;
  const UpdateArgs& args_;
};

// A piece that is all of a parameter, of memory that is not there.
UpdatePiece on_paper(const ParameterList& parameters, int parameter, const TrainConfig& train, Device device) {
  const int64_t elements = parameters.all[static_cast<size_t>(parameter)].elements();
  const auto flat = [&](DType dtype, int64_t n) { return Tensor::contiguous(nullptr, dtype, {n}, device); };
  UpdatePiece piece{.parameter = parameter,
                    .weight = flat(train.precision.weight, elements),
                    .gradient = flat(train.precision.grad, elements),
                    .states = {}};
  for (const StateSpec& state : optimizer_states(parameters, parameter, train))
    piece.states.push_back(flat(state.dtype, state.elements(elements)));
  return piece;
}

}  // namespace

void low_rank_update(const Context& ctx, const ParameterList& parameters, const TrainConfig& train,
                     const UpdatePiece& piece, const Tensor& grad_scale, const UpdateArgs& args) {
  const Parameter& p = parameters.all[static_cast<size_t>(piece.parameter)];
  const int64_t columns = p.sizes[1], rank = rank_of(train.optimizer);
  const auto state = [&](std::string_view name) { return state_of(piece, parameters, train, name); };
  const Tensor master = state("master"), m = state("m"), v = state("v"), last = state("last");
  const LowRankUpdate low_rank(ctx, train, static_cast<uint32_t>(piece.parameter), p.decays, grad_scale, args);
  int64_t first_state = 0;
  for (size_t i = 0; i < p.parts.size(); ++i) {
    const int64_t rows = p.parts[i].end - p.parts[i].begin, first = p.parts[i].begin * columns;
    const auto matrix_of = [&](const Tensor& t) {
      const Tensor slice = flat_slice(t, first, rows * columns);
      return slice.present() ? slice.reshape({rows, columns}) : slice;
    };
    const int64_t states = std::max(rows, columns) * rank;
    low_rank.update({.weight = matrix_of(master.present() ? master : piece.weight),
                     .gradient = matrix_of(piece.gradient),
                     .copy = master.present() ? matrix_of(piece.weight) : Tensor{},
                     .m = flat_slice(m, first_state, states),
                     .v = flat_slice(v, first_state, states),
                     .last = flat_slice(last, static_cast<int64_t>(i), 1),
                     .first_element = first,
                     .first_state = first_state});
    first_state += states;
  }
}

int64_t update_scratch(const ParameterList& parameters, const TrainConfig& train, Device device) {
  StackArena arena = StackArena::measuring_arena();
  const Context ctx{.device = device, .threads = train.threads, .memory = &arena};
  for (int i = 0; i < static_cast<int>(parameters.all.size()); ++i) {
    if (updated_whole(parameters, i, train))
      update_piece(ctx, parameters, train, on_paper(parameters, i, train, device), {}, {});
  }
  return arena.bytes_needed();
}

void check_low_rank(const ParameterList& parameters, const TrainConfig& train) {
  if (!is_low_rank(train.optimizer.kind)) return;
  const int64_t rank = rank_of(train.optimizer);
  const std::string where = "--optimizer " + std::string(to_string(train.optimizer.kind));
  if (train.lora.any()) {
    throw Error(ErrorCode::invalid_argument,
                {.where = where,
                 .what = "adapters are of low rank themselves, and what is beside them is frozen",
                 .fix = "Use --optimizer adamw or adamw8 with --lora."});
  }
  for (int i = 0; i < static_cast<int>(parameters.all.size()); ++i) {
    const Parameter& p = parameters.all[static_cast<size_t>(i)];
    if (!updated_whole(parameters, i, train)) continue;
    for (const ParameterPart& part : p.parts) {
      const int64_t shorter = std::min(part.end - part.begin, p.sizes[1]);
      if (rank <= shorter) continue;
      throw Error(ErrorCode::invalid_argument,
                  {.where = where,
                   .what = "'" + part.name + "' is " + std::to_string(part.end - part.begin) + " x " +
                           std::to_string(p.sizes[1]) + " and cannot be projected to this rank",
                   .expected = "--rank of at most " + std::to_string(shorter) + ", its shorter side",
                   .got = std::to_string(rank),
                   .fix = "A quarter of the hidden size is a good beginning."});
    }
  }
}

}  // namespace tigon
