#include "train/step.hpp"

#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/embedding.hpp"
#include "tigon/ops/global_norm.hpp"

namespace tigon {

Step::Step(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train)
    : model_(model),
      parameters_(parameters),
      train_(train),
      block_({.config = model,
              .batch = train.batch,
              .seq = train.seq,
              .dtype = train.precision.weight,
              .fused = train.fused,
              .mlp_tile = train.memory.mlp_tile,
              .deterministic = train.deterministic},
             train.memory.recompute) {}

namespace {

// x = embed(tokens), in a fresh tensor.
OwnedTensor embed(const Context& ctx, const ModelConfig& model, const Tensor& ids, const Tensor& weight) {
  OwnedTensor x(ctx, "layers.0.x", weight.dtype, {ids.sizes[0], model.hidden}, MemoryClass::layer_inputs);
  ops::embedding_forward(ctx, {.ids = ids, .weight = weight, .y = x, .scale = model.embedding_scale});
  return x;
}

// Books whatever is taken through it as the loss's: the logits and what belongs to them have a row of their own in the
// memory table.
class LossMemory final : public MemorySource {
 public:
  explicit LossMemory(MemorySource& source) : source_(source) {}
  Allocation take(std::string_view name, int64_t bytes, MemoryClass) override {
    return source_.take(name, bytes, MemoryClass::loss);
  }
  void give_back(const Allocation& allocation) noexcept override { source_.give_back(allocation); }
  bool measuring() const noexcept override { return source_.measuring(); }

 private:
  MemorySource& source_;
};

}  // namespace

void Step::forward_backward(const Context& ctx, Residents& r, const StepBuffers& buffers,
                            const UpdateArgs* early) const {
  const int64_t layers = model_.layers;
  const Tensor ids = buffers.micro_ids(0);
  const Tensor embedding = r.weight[static_cast<size_t>(parameters_.embedding)];
  std::vector<BlockValues> saved(static_cast<size_t>(layers));

  saved[0][Slot::x] = embed(ctx, model_, ids, embedding);
  StreamEnd stream;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const BlockTensors weight = r.block_weights(parameters_, layer);
    stream = block_.forward({.ctx = ctx,
                             .shape = block_.shape(),
                             .layer = layer,
                             .weight = weight,
                             .values = saved[static_cast<size_t>(layer)],
                             .below = stream,
                             .runs = &runs_});
  }

  OwnedTensor dx = loss_and_grad(ctx, r, buffers, stream, true);
  if (early) {
    // A head that is the embedding gets the rest of its gradient at the very end.
    const std::array<int, 2> end = {parameters_.final_norm, parameters_.head};
    update_part(ctx, r, buffers, layers, std::span(end).first(model_.tied_embeddings ? 1 : 2), *early);
  }

  for (int64_t layer = layers; layer-- > 0;) {
    const BlockTensors weight = r.block_weights(parameters_, layer);
    BlockGradients gradients(ctx, r.gradients, parameters_.blocks[static_cast<size_t>(layer)]);
    const BlockRun run{.ctx = ctx,
                       .shape = block_.shape(),
                       .layer = layer,
                       .weight = weight,
                       .values = saved[static_cast<size_t>(layer)],
                       .gradients = &gradients,
                       .runs = &runs_};
    block_.restore(run);
    dx = block_.backward(run, std::move(dx));
    if (early) update_part(ctx, r, buffers, layer, parameters_.blocks[static_cast<size_t>(layer)], *early);
  }

  const Gradient dembedding = r.gradients.at(ctx, parameters_.embedding);
  ops::embedding_backward(ctx, {.ids = ids,
                                .dy = dx,
                                .dweight = dembedding.tensor,
                                .scale = model_.embedding_scale,
                                .accumulate_dweight = dembedding.accumulate});
  if (early) update_part(ctx, r, buffers, layers + 1, std::span(&parameters_.embedding, 1), *early);
}

// The last norm, the head and the loss; returns the gradient of the stream's end.
OwnedTensor Step::loss_and_grad(const Context& ctx, Residents& r, const StepBuffers& buffers, const StreamEnd& stream,
                                bool with_grad) const {
  const DType dtype = train_.precision.weight;
  const int64_t tokens = train_.tokens();
  const Tensor norm_weight = r.weight[static_cast<size_t>(parameters_.final_norm)];
  LossMemory loss_memory(*ctx.memory);
  Context loss_ctx = ctx;
  loss_ctx.memory = &loss_memory;
  ops::unfused::Tape norm_tape, loss_tape;
  const auto make = [&](const char* name, MemoryClass kind) {
    return OwnedTensor(ctx, name, dtype, {tokens, model_.hidden}, kind);
  };

  OwnedTensor x = make("final.x", MemoryClass::activations), normed = make("final.normed", MemoryClass::activations);
  OwnedTensor rstd(ctx, "final.rstd", DType::f32, {tokens}, MemoryClass::activations);
  const ops::AddRmsnormForward norm{.x = stream.out,
                                    .residual = stream.mid,
                                    .weight = norm_weight,
                                    .residual_out = x,
                                    .y = normed,
                                    .rstd = rstd,
                                    .eps = model_.norm_eps,
                                    .offset = model_.norm_offset,
                                    .casting = model_.norm_casting};
  const bool fused_norm = train_.fused.rmsnorm;
  fused_norm ? ops::add_rmsnorm_forward(ctx, norm) : ops::unfused::add_rmsnorm_forward(ctx, norm, norm_tape);
  stream.release();

  // The sum, times what one token's share of the step's mean is: so micro-batches of any size add up to the large
  // batch.
  ops::FusedLinearCrossEntropyForward loss{
      .x = normed,
      .weight = r.weight[static_cast<size_t>(parameters_.head)],
      .target = buffers.micro_labels(0),
      .options = {.ignore_index = train_.ignore_index, .reduction = ops::Reduction::sum},
      .chunk = train_.memory.chunk,
      .out = {.loss = buffers.loss(0)}};
  OwnedTensor dnormed;
  if (with_grad) {
    dnormed = make("final.dnormed", MemoryClass::activations);
    const Gradient head = r.gradients.at(ctx, parameters_.head);
    loss.dloss = buffers.loss_grad;
    loss.dx = dnormed;
    loss.dweight = head.tensor;
    loss.accumulate_dweight = head.accumulate;
  }
  if (train_.fused.flce) {
    ops::fused_linear_cross_entropy_forward(loss_ctx, loss);
  } else {
    ops::unfused::fused_linear_cross_entropy_forward(loss_ctx, loss, loss_tape);
    if (with_grad) ops::unfused::fused_linear_cross_entropy_backward(loss_ctx, loss, loss_tape);
  }
  if (!with_grad) return {};
  normed.reset();

  const Gradient dweight = r.gradients.at(ctx, parameters_.final_norm);
  const ops::AddRmsnormBackward back{.dy = dnormed,
                                     .residual_out = x,
                                     .weight = norm_weight,
                                     .rstd = rstd,
                                     .dx = dnormed,
                                     .dweight = dweight.tensor,
                                     .offset = model_.norm_offset,
                                     .casting = model_.norm_casting,
                                     .accumulate_dweight = dweight.accumulate};
  fused_norm ? ops::add_rmsnorm_backward(ctx, back) : ops::unfused::add_rmsnorm_backward(ctx, back, norm_tape);
  return dnormed;
}

void Step::norm(const Context& ctx, Residents& r, const StepBuffers& buffers, double loss_scale) const {
  const std::vector<Tensor> gradients = r.gradients.all();
  ops::global_norm(ctx, {.tensors = gradients,
                         .norm = buffers.norm(),
                         .clip = buffers.clip(),
                         .max_norm = train_.clip,
                         .scale = 1.0 / loss_scale});
}

void Step::update_one(const Context& ctx, Residents& r, int parameter, const Tensor& grad_scale,
                      const UpdateArgs& args) const {
  const auto i = static_cast<size_t>(parameter);
  const Parameter& p = parameters_.all[i];
  const auto flat = [&](const Tensor& t) { return t.reshape({p.elements()}); };
  const bool master = train_.precision.master.has_value();
  const AdamwOptions& options = train_.optimizer;
  ops::adamw(ctx, {.param = flat(master ? r.master[i] : r.weight[i]),
                   .grad = flat(r.gradients.of(parameter)),
                   .m = flat(r.m[i]),
                   .v = flat(r.v[i]),
                   .param_copy = master ? flat(r.weight[i]) : Tensor{},
                   .grad_scale = grad_scale,
                   .lr = args.lr,
                   .beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .eps = options.eps,
                   .weight_decay = p.decays ? options.weight_decay : 0.0,
                   .step = args.adam_step,
                   .rounding = train_.precision.rounding,
                   .seed = train_.seed,
                   .tensor_id = static_cast<uint32_t>(i)});
  r.gradients.used(parameter);
}

void Step::update(const Context& ctx, Residents& r, const StepBuffers& buffers, const UpdateArgs& args) const {
  for (size_t i = 0; i < parameters_.all.size(); ++i) update_one(ctx, r, static_cast<int>(i), buffers.clip(), args);
}

// The norm is for the log alone.
void Step::update_part(const Context& ctx, Residents& r, const StepBuffers& buffers, int64_t part,
                       std::span<const int> parameters, const UpdateArgs& args) const {
  std::vector<Tensor> gradients;
  for (const int parameter : parameters) {
    if (parameter >= 0) gradients.push_back(r.gradients.of(parameter));
  }
  ops::global_norm(ctx, {.tensors = gradients, .norm = buffers.part_norm(part)});
  for (const int parameter : parameters) {
    if (parameter >= 0) update_one(ctx, r, parameter, {}, args);
  }
}

void Step::evaluate(const Context& ctx, Residents& r, const StepBuffers& buffers) const {
  const Tensor embedding = r.weight[static_cast<size_t>(parameters_.embedding)];
  // Two frames suffice: a block reads what the one below left, and nothing older.
  std::array<BlockValues, 2> values;
  values[0][Slot::x] = embed(ctx, model_, buffers.micro_ids(0), embedding);
  StreamEnd stream;
  for (int64_t layer = 0; layer < model_.layers; ++layer) {
    const BlockTensors weight = r.block_weights(parameters_, layer);
    stream = block_.forward({.ctx = ctx,
                             .shape = block_.shape(),
                             .layer = layer,
                             .weight = weight,
                             .values = values[static_cast<size_t>(layer % 2)],
                             .below = stream},
                            false);
  }
  (void)loss_and_grad(ctx, r, buffers, stream, false);
}

}  // namespace tigon
