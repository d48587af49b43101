#include "train/step.hpp"

#include <array>

#include "tigon/core/scope.hpp"
#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/elementary.hpp"
#include "tigon/ops/embedding.hpp"
#include "train/next_token.hpp"

namespace tigon {

TrainConfig speaking(TrainConfig train) {
  train.seq = train.speaks;
  train.batch = train.accumulate = 1;
  return train;
}

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
              .deterministic = train.deterministic,
              .lora = train.lora},
             train.memory.recompute) {}

void Step::forward_backward(const Context& ctx, WeightSource& weights, StreamedVocabulary* vocabulary,
                            GradientSink& gradients, LayerInputs& inputs, const StepBuffers& buffers) const {
  const int64_t layers = model_.layers, micros = train_.micros_at_once();
  // One micro-batch hands the terms of the stream from block to block, and its gradient back. Several wait for their
  // turn with the next layer among the layers' inputs.
  const bool alone = micros == 1;
  std::vector<BlockValues> saved(static_cast<size_t>(layers * micros));
  const auto values_of = [&](int64_t layer, int64_t micro) -> BlockValues& {
    return saved[static_cast<size_t>(layer * micros + micro)];
  };
  const auto block_weights = [&](const WeightLease& lease, int64_t layer) {
    return lease.block(parameters_.blocks[static_cast<size_t>(layer)]);
  };
  Stream stream;
  OwnedTensor dx;
  {
    const Scope forward(ctx, "forward");
    {
      const WeightLease lease = weights.acquire(ctx, parameters_.embedding_part(), parameters_.block_part(0));
      for (int64_t micro = 0; micro < micros; ++micro) {
        OwnedTensor x = embed(ctx, lease, vocabulary, buffers, micro);
        alone ? void(values_of(0, 0)[Slot::x] = std::move(x)) : inputs.keep(ctx, 0, micro, std::move(x));
      }
    }
    for (int64_t layer = 0; layer < layers; ++layer) {
      const Scope scope(ctx, "layers", layer);
      const int next = layer + 1 < layers ? parameters_.block_part(layer + 1) : parameters_.head_part();
      const WeightLease lease = weights.acquire(ctx, parameters_.block_part(layer), next);
      const BlockTensors weight = block_weights(lease, layer);
      for (int64_t micro = 0; micro < micros; ++micro) {
        BlockValues& values = values_of(layer, micro);
        if (!alone) {
          values[Slot::x] = inputs.lend(ctx, layer, micro);
          micro + 1 < micros ? inputs.prefetch(ctx, layer, micro + 1) : inputs.prefetch(ctx, layer + 1, 0);
        }
        stream = block_.forward(run_of(ctx, buffers, micro, layer, weight, values), std::move(stream));
        if (alone) {
          inputs.keep(ctx, layer, 0, std::move(values[Slot::x]));
        } else {
          values[Slot::x].reset();
          inputs.keep(ctx, layer + 1, micro, sum(ctx, layer + 1, std::move(stream)));
          stream = {};
        }
      }
    }
  }

  {
    const int last = parameters_.block_part(layers - 1);
    const bool own_head = parameters_.head_part() == parameters_.end_part();
    const WeightLease end = weights.acquire(ctx, parameters_.end_part(), own_head ? last : -1);
    const WeightLease head = own_head ? end.again() : weights.acquire(ctx, parameters_.head_part(), last);
    for (int64_t micro = 0; micro < micros; ++micro) {
      OwnedTensor x = alone ? OwnedTensor() : inputs.take(ctx, layers, micro);
      if (micro + 1 < micros) inputs.prefetch(ctx, layers, micro + 1);
      dx = loss_and_grad(ctx, end, head, vocabulary, &gradients, buffers, micro, std::move(stream), std::move(x));
      if (!alone) inputs.keep(ctx, layers, micro, std::move(dx));
    }
  }
  gradients.complete(ctx, parameters_.end_part());
  inputs.finish(ctx);

  for (int64_t layer = layers; layer-- > 0;) {
    const Scope scope(ctx, "layers", layer);
    const int part = parameters_.block_part(layer);
    const WeightLease lease = weights.acquire(ctx, part, layer > 0 ? part - 1 : -1);
    const BlockTensors weight = block_weights(lease, layer);
    BlockGradients block_gradients(ctx, gradients, parameters_.blocks[static_cast<size_t>(layer)]);
    for (int64_t micro = 0; micro < micros; ++micro) {
      BlockValues& values = values_of(layer, micro);
      values[Slot::x] = inputs.take(ctx, layer, micro);
      if (!alone) dx = inputs.take(ctx, layer + 1, micro);
      // What comes next: of this layer, or of the one below.
      const int64_t next_layer = micro + 1 < micros ? layer : layer - 1, next_micro = (micro + 1) % micros;
      if (next_layer >= 0) inputs.prefetch(ctx, next_layer, next_micro);
      if (!alone && next_micro > 0) inputs.prefetch(ctx, next_layer + 1, next_micro);
      BlockRun run = run_of(ctx, buffers, micro, layer, weight, values);
      run.gradients = &block_gradients;
      {
        const Scope restore(ctx, "restore");
        block_.restore(run);
      }
      const Scope backward(ctx, "backward");
      dx = block_.backward(run, std::move(dx));
      if (!alone) inputs.keep(ctx, layer, micro, std::move(dx));
    }
    gradients.complete(ctx, part);
  }

  const Scope scope(ctx, "embed backward");
  for (int64_t micro = 0; micro < micros; ++micro) {
    if (!alone) dx = inputs.take(ctx, 0, micro);
    embed_backward(ctx, vocabulary, gradients, buffers, micro, dx);
  }
  dx.reset();
  gradients.complete(ctx, parameters_.embedding_part());
  inputs.finish(ctx);
  if (vocabulary) vocabulary->finish(ctx);
  gradients.finish(ctx);
}

// x = embed(tokens), in a fresh tensor.
OwnedTensor Step::embed(const Context& ctx, const WeightLease& weights, StreamedVocabulary* vocabulary,
                        const StepBuffers& buffers, int64_t micro) const {
  const Scope scope(ctx, "embed");
  StreamedVocabulary::Rows rows;
  if (vocabulary) rows = vocabulary->embedding(ctx, buffers, micro);
  const Tensor ids = vocabulary ? rows.ids.view : buffers.micro_ids(micro);
  const Tensor weight = vocabulary ? rows.table.view : weights[parameters_.embedding];
  OwnedTensor x(ctx, "layers.0.x", weight.dtype, {ids.sizes[0], model_.hidden}, MemoryClass::layer_inputs);
  ops::embedding_forward(ctx, {.ids = ids, .weight = weight, .y = x, .scale = model_.embedding_scale});
  return x;
}

void Step::embed_backward(const Context& ctx, StreamedVocabulary* vocabulary, GradientSink& gradients,
                          const StepBuffers& buffers, int64_t micro, const Tensor& dx) const {
  const auto add = [&](const Tensor& ids, const Gradient& gradient) {
    if (!gradient.tensor.present()) return;
    ops::embedding_backward(ctx, {.ids = ids,
                                  .dy = dx,
                                  .dweight = gradient.tensor,
                                  .scale = model_.embedding_scale,
                                  .accumulate_dweight = gradient.accumulate});
  };
  if (!vocabulary) return add(buffers.micro_ids(micro), gradients.at(ctx, parameters_.embedding));
  StreamedVocabulary::Rows rows = vocabulary->gradient(ctx, buffers, micro);
  add(rows.ids, {.tensor = rows.table, .accumulate = rows.filled});
  vocabulary->send_home(ctx, std::move(rows));
}

OwnedTensor Step::sum(const Context& ctx, int64_t layer, Stream stream) const {
  const Scope scope(ctx, "sum");
  OwnedTensor x(ctx, "layers." + std::to_string(layer) + ".x", stream.out.view.dtype, {train_.tokens(), model_.hidden},
                MemoryClass::layer_inputs);
  ops::binary(ctx, {.op = ops::BinaryOp::add, .a = stream.out, .b = stream.mid, .y = x});
  return x;
}

// The last norm, the head and the loss; returns the gradient of the stream's end.
OwnedTensor Step::loss_and_grad(const Context& ctx, const WeightLease& end, const WeightLease& head,
                                StreamedVocabulary* vocabulary, GradientSink* gradients, const StepBuffers& buffers,
                                int64_t micro, Stream stream, OwnedTensor x) const {
  const Scope scope(ctx, "loss");
  const DType dtype = train_.precision.weight;
  const int64_t tokens = train_.tokens();
  const Tensor norm_weight = end[parameters_.final_norm];
  const Context loss_ctx = ctx.booked_as(MemoryClass::loss);
  ops::unfused::Tape norm_tape, loss_tape;
  const auto make = [&](const char* name, MemoryClass kind) {
    return OwnedTensor(ctx, name, dtype, {tokens, model_.hidden}, kind);
  };

  const bool summed = x.view.present();
  if (!summed) x = make("final.x", MemoryClass::activations);
  OwnedTensor normed = make("final.normed", MemoryClass::activations);
  OwnedTensor rstd(ctx, "final.rstd", DType::f32, {tokens}, MemoryClass::activations);
  const bool fused_norm = train_.fused.rmsnorm;
  if (summed) {
    const ops::RmsnormForward norm{.x = x,
                                   .weight = norm_weight,
                                   .y = normed,
                                   .rstd = rstd,
                                   .eps = model_.norm_eps,
                                   .offset = model_.norm_offset,
                                   .casting = model_.norm_casting};
    fused_norm ? ops::rmsnorm_forward(ctx, norm) : ops::unfused::rmsnorm_forward(ctx, norm, norm_tape);
  } else {
    const ops::AddRmsnormForward norm{.x = stream.out,
                                      .residual = stream.mid,
                                      .weight = norm_weight,
                                      .residual_out = x,
                                      .y = normed,
                                      .rstd = rstd,
                                      .eps = model_.norm_eps,
                                      .offset = model_.norm_offset,
                                      .casting = model_.norm_casting};
    fused_norm ? ops::add_rmsnorm_forward(ctx, norm) : ops::unfused::add_rmsnorm_forward(ctx, norm, norm_tape);
    stream = {};
  }

  // The sum, times what one token's share of the step's mean is: so micro-batches of any size add up to the large
  // batch.
  // Of a head that comes in panels, its sizes.
  const Tensor sizes = Tensor::contiguous(nullptr, dtype, {model_.vocab, model_.hidden}, ctx.device);
  ops::FusedLinearCrossEntropyForward loss{
      .x = normed,
      .weight = vocabulary ? sizes : head[parameters_.head],
      .target = buffers.micro_labels(micro),
      .options = {.ignore_index = train_.ignore_index, .reduction = ops::Reduction::sum},
      .chunk = train_.memory.chunk,
      .out = {.loss = buffers.loss(micro)},
      .panels = vocabulary};
  OwnedTensor dnormed;
  if (gradients) {
    dnormed = make("final.dnormed", MemoryClass::activations);
    Gradient dhead;
    if (vocabulary) {
      dhead = {.tensor = sizes, .accumulate = vocabulary->begin_loss()};
      dhead.tensor.dtype = train_.precision.grad;
    } else {
      dhead = gradients->at(ctx, parameters_.head);
    }
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
  if (vocabulary) vocabulary->finish_loss(ctx);
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

Stream Step::forward_alone(const Context& ctx, WeightSource& weights, StreamedVocabulary* vocabulary,
                           const StepBuffers& buffers) const {
  // Two frames suffice: a block reads what the one below left, and nothing older.
  std::array<BlockValues, 2> values;
  values[0][Slot::x] =
      embed(ctx, weights.acquire(ctx, parameters_.embedding_part(), parameters_.block_part(0)), vocabulary, buffers, 0);
  Stream stream;
  for (int64_t layer = 0; layer < model_.layers; ++layer) {
    const Scope block(ctx, "layers", layer);
    const int next = layer + 1 < model_.layers ? parameters_.block_part(layer + 1) : parameters_.head_part();
    const WeightLease lease = weights.acquire(ctx, parameters_.block_part(layer), next);
    const BlockTensors weight = lease.block(parameters_.blocks[static_cast<size_t>(layer)]);
    const BlockRun run = run_of(ctx, buffers, 0, layer, weight, values[static_cast<size_t>(layer % 2)]);
    stream = block_.forward(run, std::move(stream), false);
  }
  return stream;
}

void Step::evaluate(const Context& ctx, WeightSource& weights, StreamedVocabulary* vocabulary,
                    const StepBuffers& buffers) const {
  const Scope scope(ctx, "evaluation");
  Stream stream = forward_alone(ctx, weights, vocabulary, buffers);
  const WeightLease end = weights.acquire(ctx, parameters_.end_part());
  const WeightLease head =
      parameters_.head_part() == parameters_.end_part() ? end.again() : weights.acquire(ctx, parameters_.head_part());
  (void)loss_and_grad(ctx, end, head, vocabulary, nullptr, buffers, 0, std::move(stream), {});
}

OwnedTensor Step::next_token(const Context& ctx, WeightSource& weights, const StepBuffers& text, int64_t place) const {
  const Scope scope(ctx, "next token");
  return next_token_logits(ctx, model_, parameters_, weights, forward_alone(ctx, weights, nullptr, text),
                           std::array{place});
}

}  // namespace tigon
