#include "train/update.hpp"

#include "tigon/core/scope.hpp"
#include "tigon/ops/global_norm.hpp"
#include "train/low_rank.hpp"

namespace tigon {

Tensor flat_slice(const Tensor& t, int64_t first, int64_t elements) {
  return t.present() ? t.reshape({t.elements()}).slice(0, first, first + elements) : Tensor{};
}

Tensor state_slice(const TrainedParameter::State& state, int64_t first, int64_t elements) {
  return flat_slice(state.tensor, state.spec.count > 0 ? 0 : first / state.spec.span, state.spec.elements(elements));
}

UpdatePiece piece_at_home(const Residents& r, int parameter, int64_t first, int64_t elements) {
  const TrainedParameter& trained = r.parameters[static_cast<size_t>(parameter)];
  UpdatePiece piece{.parameter = parameter,
                    .first = first,
                    .weight = flat_slice(trained.weight, first, elements),
                    .gradient = flat_slice(r.gradient(parameter), first, elements),
                    .states = {}};
  for (const TrainedParameter::State& state : trained.states)
    piece.states.push_back(state_slice(state, first, elements));
  return piece;
}

Tensor state_of(const UpdatePiece& piece, const ParameterList& parameters, const TrainConfig& train,
                std::string_view name) {
  const std::vector<StateSpec> specs = optimizer_states(parameters, piece.parameter, train);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return piece.states[i];
  }
  return {};
}

void update_piece(const Context& ctx, const ParameterList& parameters, const TrainConfig& train,
                  const UpdatePiece& piece, const Tensor& grad_scale, const UpdateArgs& args) {
  if (updated_whole(parameters, piece.parameter, train))
    return low_rank_update(ctx, parameters, train, piece, grad_scale, args);
  const OptimizerOptions& options = train.optimizer;
  const auto state = [&](std::string_view name) { return state_of(piece, parameters, train, name); };
  const Tensor master = state("master");
  const bool decays = parameters.all[static_cast<size_t>(piece.parameter)].decays;
  ops::adamw(ctx, {.param = master.present() ? master : piece.weight,
                   .grad = piece.gradient,
                   .m = state("m"),
                   .v = state("v"),
                   .m_scale = state("m_scale"),
                   .v_scale = state("v_scale"),
                   .param_copy = master.present() ? piece.weight : Tensor{},
                   .grad_scale = grad_scale,
                   .lr = args.lr,
                   .beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .eps = options.eps,
                   .weight_decay = decays ? options.weight_decay : 0.0,
                   .step = args.adam_step,
                   .rounding = train.precision.rounding,
                   .seed = train.seed,
                   .tensor_id = static_cast<uint32_t>(piece.parameter),
                   .first_element = piece.first});
}

void Update::norm(const Context& ctx, Residents& r, const StepBuffers& buffers, double loss_scale) const {
  const Scope scope(ctx, "norm");
  const Tensor& pieces = r.norm_pieces;  // there where the gradients are gone
  std::vector<Tensor> gradients = pieces.present() ? std::vector<Tensor>() : r.gradients.all();
  std::erase_if(gradients, [](const Tensor& t) { return !t.present(); });  // of what is frozen
  ops::global_norm(ctx, {.tensors = gradients,
                         .norm = buffers.norm(),
                         .clip = buffers.clip(),
                         .max_norm = train_.clip,
                         .scale = 1.0 / loss_scale,
                         .pieces = pieces});
}

void Update::all(const Context& ctx, Residents& r, const StepBuffers& buffers, const UpdateArgs& args) const {
  for (int p = 0; p < static_cast<int>(parameters_.parts.size()); ++p) part_by(ctx, r, p, buffers.clip(), args);
}

void Update::part(const Context& ctx, Residents& r, const StepBuffers& buffers, int part,
                  const UpdateArgs& args) const {
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  std::vector<Tensor> gradients;
  for (int i = p.trained; i < p.end; ++i) gradients.push_back(r.gradients.of(i));
  ops::global_norm(ctx, {.tensors = gradients, .norm = buffers.part_norm(part)});
  part_by(ctx, r, part, {}, args);
}

void Update::part_by(const Context& ctx, Residents& r, int part, const Tensor& grad_scale,
                     const UpdateArgs& args) const {
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  const Scope scope(ctx, "update", part);
  for (int i = p.trained; i < p.end; ++i) {
    const int64_t elements = parameters_.all[static_cast<size_t>(i)].elements();
    update_piece(ctx, parameters_, train_, piece_at_home(r, i, 0, elements), grad_scale, args);
    r.gradients.used(i);
  }
}

}  // namespace tigon
