#pragma once

#include "tigon/model/block.hpp"
#include "tigon/train/train_config.hpp"
#include "train/residency/layer_inputs.hpp"
#include "train/residency/streamed_vocabulary.hpp"
#include "train/weight_source.hpp"

namespace tigon {

// What a Step is made with that continues a text.
TrainConfig speaking(TrainConfig train);

// Forward and backward of a model, as a sequence of op calls. It owns no memory, knows no device, and cannot tell where
// weights come from or gradients go: with a Context in measure mode it is its own planner.
class Step {
 public:
  Step(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train);

  // Loss and gradients of as many micro-batches as a layer takes at once: 1, or by layers all of the step's.
  // `vocabulary`: embedding and head where leases and `gradients` have none; else null.
  void forward_backward(const Context& ctx, WeightSource& weights, StreamedVocabulary* vocabulary,
                        GradientSink& gradients, LayerInputs& inputs, const StepBuffers& buffers) const;
  // The loss alone, of micro-batch 0.
  void evaluate(const Context& ctx, WeightSource& weights, StreamedVocabulary* vocabulary,
                const StepBuffers& buffers) const;
  // How well each token would follow that at `place` of a text, [1, vocab]. Of a Step with speaking(train).
  OwnedTensor next_token(const Context& ctx, WeightSource& weights, const StepBuffers& text, int64_t place) const;

 private:
  // All blocks of micro-batch 0, with nothing kept.
  Stream forward_alone(const Context& ctx, WeightSource& weights, StreamedVocabulary* vocabulary,
                       const StepBuffers& buffers) const;
  BlockRun run_of(const Context& ctx, const StepBuffers& buffers, int64_t micro, int64_t layer,
                  const BlockTensors& weight, BlockValues& values) const {
    return {.ctx = ctx,
            .shape = block_.shape(),
            .layer = layer,
            .weight = weight,
            .values = values,
            .positions = buffers.micro_positions(micro, train_.seq),
            .starts = buffers.micro_starts(micro, train_.seq)};
  }
  OwnedTensor embed(const Context& ctx, const WeightLease& weights, StreamedVocabulary* vocabulary,
                    const StepBuffers& buffers, int64_t micro) const;
  void embed_backward(const Context& ctx, StreamedVocabulary* vocabulary, GradientSink& gradients,
                      const StepBuffers& buffers, int64_t micro, const Tensor& dx) const;
  // The input of a layer from what the one below leaves.
  OwnedTensor sum(const Context& ctx, int64_t layer, Stream stream) const;
  // From the stream's end, or from the sum of its terms. With `gradients` absent the loss alone.
  OwnedTensor loss_and_grad(const Context& ctx, const WeightLease& end, const WeightLease& head,
                            StreamedVocabulary* vocabulary, GradientSink* gradients, const StepBuffers& buffers,
                            int64_t micro, Stream stream, OwnedTensor x) const;

  const ModelConfig& model_;
  const ParameterList& parameters_;
  const TrainConfig& train_;
  Block block_;
};

}  // namespace tigon
