#include "train/low_rank.hpp"

#include <algorithm>

#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
#include "train/low_rank_matrix.hpp"

namespace tigon {

namespace {

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
  const Tensor master = state("master"), m = state("m"), v = state("v"), last = state("last"),
               projection = state("projection");
  const LowRankUpdate update{.ctx = ctx,
                             .train = train,
                             .parameter = piece.parameter,
                             .decays = p.decays,
                             .grad_scale = grad_scale,
                             .args = args};
  int64_t first_state = 0, first_projected = 0;
  for (size_t i = 0; i < p.parts.size(); ++i) {
    const int64_t rows = p.parts[i].end - p.parts[i].begin, first = p.parts[i].begin * columns;
    const auto matrix_of = [&](const Tensor& t) {
      const Tensor slice = flat_slice(t, first, rows * columns);
      return slice.present() ? slice.reshape({rows, columns}) : slice;
    };
    const int64_t states = std::max(rows, columns) * rank, projected = std::min(rows, columns) * rank;
    const Matrix matrix{.weight = matrix_of(master.present() ? master : piece.weight),
                        .gradient = matrix_of(piece.gradient),
                        .copy = master.present() ? matrix_of(piece.weight) : Tensor{},
                        .m = flat_slice(m, first_state, states),
                        .v = flat_slice(v, first_state, states),
                        .last = flat_slice(last, static_cast<int64_t>(i), 1),
                        .projection = flat_slice(projection, first_projected, projected),
                        .first_element = first,
                        .first_state = first_state};
    train.optimizer.kind == Optimizer::galore ? galore_update(update, matrix) : apollo_update(update, matrix);
    first_state += states;
    first_projected += projected;
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
  if (train.optimizer.kind == Optimizer::galore && train.precision.grad == DType::f16) {
    throw Error(ErrorCode::unsupported, {.where = where,
                                         .what = "products of gradients with themselves leave f16's range",
                                         .fix = "Use --precision bf16, or --optimizer apollo."});
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
