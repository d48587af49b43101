#include "train/update.hpp"

#include "tigon/core/scope.hpp"
#include "tigon/ops/global_norm.hpp"

namespace tigon {

Tensor flat_slice(const Tensor& t, int64_t first, int64_t elements) {
  return t.present() ? t.reshape({t.elements()}).slice(0, first, first + elements) : Tensor{};
}

AdamwTensors AdamwTensors::slice(int64_t first, int64_t elements) const {
  return {.param = flat_slice(param, first, elements),
          .grad = flat_slice(grad, first, elements),
          .m = flat_slice(m, first, elements),
          .v = flat_slice(v, first, elements),
          .param_copy = flat_slice(param_copy, first, elements)};
}

AdamwTensors adamw_tensors(const TrainedParameter& trained, const Tensor& gradient) {
  const Tensor master = trained.state("master");
  return {.param = master.present() ? master : trained.weight.view,
          .grad = gradient,
          .m = trained.state("m"),
          .v = trained.state("v"),
          .param_copy = master.present() ? trained.weight.view : Tensor{}};
}

void update_piece(const Context& ctx, const ParameterList& parameters, const TrainConfig& train, int parameter,
                  int64_t first, const AdamwTensors& tensors, const Tensor& grad_scale, const UpdateArgs& args) {
  const AdamwOptions& options = train.optimizer;
  ops::adamw(ctx, {.param = tensors.param,
                   .grad = tensors.grad,
                   .m = tensors.m,
                   .v = tensors.v,
                   .param_copy = tensors.param_copy,
                   .grad_scale = grad_scale,
                   .lr = args.lr,
                   .beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .eps = options.eps,
                   .weight_decay = parameters.all[static_cast<size_t>(parameter)].decays ? options.weight_decay : 0.0,
                   .step = args.adam_step,
                   .rounding = train.precision.rounding,
                   .seed = train.seed,
                   .tensor_id = static_cast<uint32_t>(parameter),
                   .first_element = first});
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
    const AdamwTensors whole = adamw_tensors(r.parameters[static_cast<size_t>(i)], r.gradients.of(i));
    update_piece(ctx, parameters_, train_, i, 0, whole.slice(0, whole.param.elements()), grad_scale, args);
    r.gradients.used(i);
  }
}

}  // namespace tigon
