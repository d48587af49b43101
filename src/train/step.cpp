#include "train/step.hpp"

#include "tigon/core/scope.hpp"
#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/embedding.hpp"

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

void Step::forward_backward(const Context& ctx, WeightSource& weights, GradientSink& gradients,
                            const StepBuffers& buffers) const {
  const int64_t layers = model_.layers;
  std::vector<BlockValues> saved(static_cast<size_t>(layers));
  Stream stream;
  {
    const Scope forward(ctx, "forward");
    saved[0][Slot::x] = embed(ctx, weights, buffers);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const Scope scope(ctx, "layers", layer);
      const WeightLease lease = weights.acquire(ctx, parameters_.block_part(layer), parameters_.block_part(layer + 1));
      const BlockTensors weight = lease.block(parameters_.blocks[static_cast<size_t>(layer)]);
      stream = block_.forward({.ctx = ctx,
                               .shape = block_.shape(),
                               .layer = layer,
                               .weight = weight,
                               .values = saved[static_cast<size_t>(layer)]},
                              std::move(stream));
    }
  }

  OwnedTensor dx = loss_and_grad(ctx, weights, &gradients, buffers, std::move(stream));
  gradients.complete(ctx, parameters_.end_part());

  for (int64_t layer = layers; layer-- > 0;) {
    const Scope scope(ctx, "layers", layer);
    const int part = parameters_.block_part(layer);
    const WeightLease lease = weights.acquire(ctx, part, part - 1);
    const BlockTensors weight = lease.block(parameters_.blocks[static_cast<size_t>(layer)]);
    BlockGradients block_gradients(ctx, gradients, parameters_.blocks[static_cast<size_t>(layer)]);
    const BlockRun run{.ctx = ctx,
                       .shape = block_.shape(),
                       .layer = layer,
                       .weight = weight,
                       .values = saved[static_cast<size_t>(layer)],
                       .gradients = &block_gradients};
    {
      const Scope restore(ctx, "restore");
      block_.restore(run);
    }
    const Scope backward(ctx, "backward");
    dx = block_.backward(run, std::move(dx));
    gradients.complete(ctx, part);
  }

  const Scope scope(ctx, "embed backward");
  const Gradient dembedding = gradients.at(ctx, parameters_.embedding);
  ops::embedding_backward(ctx, {.ids = buffers.micro_ids(0),
                                .dy = dx,
                                .dweight = dembedding.tensor,
                                .scale = model_.embedding_scale,
                                .accumulate_dweight = dembedding.accumulate});
  gradients.complete(ctx, parameters_.embedding_part());
}

// x = embed(tokens), in a fresh tensor.
OwnedTensor Step::embed(const Context& ctx, WeightSource& weights, const StepBuffers& buffers) const {
  const Scope scope(ctx, "embed");
  const WeightLease lease = weights.acquire(ctx, parameters_.embedding_part(), parameters_.block_part(0));
  const Tensor ids = buffers.micro_ids(0), &weight = lease[parameters_.embedding];
  OwnedTensor x(ctx, "layers.0.x", weight.dtype, {ids.sizes[0], model_.hidden}, MemoryClass::layer_inputs);
  ops::embedding_forward(ctx, {.ids = ids, .weight = weight, .y = x, .scale = model_.embedding_scale});
  return x;
}

// The last norm, the head and the loss; returns the gradient of the stream's end.
OwnedTensor Step::loss_and_grad(const Context& ctx, WeightSource& weights, GradientSink* gradients,
                                const StepBuffers& buffers, Stream stream) const {
  const Scope scope(ctx, "loss");
  const DType dtype = train_.precision.weight;
  const int64_t tokens = train_.tokens();
  const WeightLease end = weights.acquire(ctx, parameters_.end_part(), parameters_.head_part());
  const WeightLease head = weights.acquire(ctx, parameters_.head_part(), parameters_.block_part(model_.layers - 1));
  const Tensor norm_weight = end[parameters_.final_norm];
  const Context loss_ctx = ctx.booked_as(MemoryClass::loss);
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
  stream = {};

  // The sum, times what one token's share of the step's mean is: so micro-batches of any size add up to the large
  // batch.
  ops::FusedLinearCrossEntropyForward loss{
      .x = normed,
      .weight = head[parameters_.head],
      .target = buffers.micro_labels(0),
      .options = {.ignore_index = train_.ignore_index, .reduction = ops::Reduction::sum},
      .chunk = train_.memory.chunk,
      .out = {.loss = buffers.loss(0)}};
  OwnedTensor dnormed;
  if (gradients) {
    dnormed = make("final.dnormed", MemoryClass::activations);
    const Gradient dhead = gradients->at(ctx, parameters_.head);
    loss.dloss = buffers.loss_grad;
    loss.dx = dnormed;
    loss.dweight = dhead.tensor;
    loss.accumulate_dweight = dhead.accumulate;
  }
  if (train_.fused.flce) {
    ops::fused_linear_cross_entropy_forward(loss_ctx, loss);
  } else {
    ops::unfused::fused_linear_cross_entropy_forward(loss_ctx, loss, loss_tape);
    if (gradients) ops::unfused::fused_linear_cross_entropy_backward(loss_ctx, loss, loss_tape);
  }
  if (!gradients) return {};
  normed.reset();

  const Gradient dweight = gradients->at(ctx, parameters_.final_norm);
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

void Step::evaluate(const Context& ctx, WeightSource& weights, const StepBuffers& buffers) const {
  const Scope scope(ctx, "evaluation");
  // Two frames suffice: a block reads what the one below left, and nothing older.
  std::array<BlockValues, 2> values;
  values[0][Slot::x] = embed(ctx, weights, buffers);
  Stream stream;
  for (int64_t layer = 0; layer < model_.layers; ++layer) {
    const Scope block(ctx, "layers", layer);
    const WeightLease lease = weights.acquire(ctx, parameters_.block_part(layer), parameters_.block_part(layer + 1));
    const BlockTensors weight = lease.block(parameters_.blocks[static_cast<size_t>(layer)]);
    stream = block_.forward({.ctx = ctx,
                             .shape = block_.shape(),
                             .layer = layer,
                             .weight = weight,
                             .values = values[static_cast<size_t>(layer % 2)]},
                            std::move(stream), false);
  }
  (void)loss_and_grad(ctx, weights, nullptr, buffers, std::move(stream));
}

}  // namespace tigon
