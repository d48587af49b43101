#pragma once

#include "tigon/model/block.hpp"
#include "tigon/train/train_config.hpp"
#include "train/weight_source.hpp"

namespace tigon {

// Forward and backward of a model, as a sequence of op calls. It owns no memory, knows no device, and cannot tell where
// weights come from or gradients go: with a Context in measure mode it is its own planner.
class Step {
 public:
  Step(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train);

  // Loss and gradients of micro-batch 0.
  void forward_backward(const Context& ctx, WeightSource& weights, GradientSink& gradients,
                        const StepBuffers& buffers) const;
  // The loss alone, of micro-batch 0.
  void evaluate(const Context& ctx, WeightSource& weights, const StepBuffers& buffers) const;

 private:
  OwnedTensor embed(const Context& ctx, WeightSource& weights, const StepBuffers& buffers) const;
  // With `gradients` absent the loss alone.
  OwnedTensor loss_and_grad(const Context& ctx, WeightSource& weights, GradientSink* gradients,
                            const StepBuffers& buffers, Stream stream) const;

  const ModelConfig& model_;
  const ParameterList& parameters_;
  const TrainConfig& train_;
  Block block_;
};

}  // namespace tigon
