#include "train/update.hpp"

#include "tigon/core/scope.hpp"
#include "tigon/ops/global_norm.hpp"

namespace tigon {

void update_elements(const Context& ctx, const ParameterList& parameters, const TrainConfig& train, int index,
                     const UpdatedElements& e, const Tensor& grad_scale, const UpdateArgs& args) {
  const Parameter& parameter = parameters.all[static_cast<size_t>(index)];
  const AdamwOptions& options = train.optimizer;
  const bool has_master = e.master.present();
  ops::adamw(ctx, {.param = has_master ? e.master : e.weight,
                   .grad = e.gradient,
                   .m = e.m,
                   .v = e.v,
                   .param_copy = has_master ? e.weight : Tensor{},
                   .grad_scale = grad_scale,
                   .lr = args.lr,
                   .beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .eps = options.eps,
                   .weight_decay = parameter.decays ? options.weight_decay : 0.0,
                   .step = args.adam_step,
                   .rounding = train.precision.rounding,
                   .seed = train.seed,
                   .tensor_id = static_cast<uint32_t>(index),
                   .first_element = e.first});
}

void update_parameter(const Context& ctx, const ParameterList& parameters, const TrainConfig& train, int index,
                      const TrainedParameter& trained, const Tensor& gradient, const Tensor& grad_scale,
                      const UpdateArgs& args) {
  const int64_t all = parameters.all[static_cast<size_t>(index)].elements();
  const auto flat = [&](const Tensor& t) { return t.present() ? t.reshape({all}) : Tensor{}; };
  update_elements(ctx, parameters, train, index,
                  {.weight = flat(trained.weight),
                   .gradient = flat(gradient),
                   .master = flat(trained.state("master")),
                   .m = flat(trained.state("m")),
                   .v = flat(trained.state("v"))},
                  grad_scale, args);
}

void Update::norm(const Context& ctx, Residents& r, const StepBuffers& buffers, double loss_scale) const {
  const Scope scope(ctx, "norm");
  const Tensor& pieces = r.norm_pieces;  // there where the gradients are gone
  const std::vector<Tensor> gradients = pieces.present() ? std::vector<Tensor>() : r.gradients.all();
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
  for (int i = p.begin; i < p.end; ++i) gradients.push_back(r.gradients.of(i));
  ops::global_norm(ctx, {.tensors = gradients, .norm = buffers.part_norm(part)});
  part_by(ctx, r, part, {}, args);
}

void Update::part_by(const Context& ctx, Residents& r, int part, const Tensor& grad_scale,
                     const UpdateArgs& args) const {
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  const Scope scope(ctx, "update", part);
  for (int i = p.begin; i < p.end; ++i) {
    update_parameter(ctx, parameters_, train_, i, r.parameters[static_cast<size_t>(i)], r.gradients.of(i), grad_scale,
                     args);
    r.gradients.used(i);
  }
}

}  // namespace tigon
