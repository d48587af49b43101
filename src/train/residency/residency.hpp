#pragma once

#include "tigon/train/trainer.hpp"
#include "train/residency/host_gradients.hpp"
#include "train/residency/layer_inputs.hpp"
#include "train/residency/nf4_weights.hpp"
#include "train/residency/part_updates.hpp"
#include "train/residency/streamed_weights.hpp"

namespace tigon {

// Who brings what where, by the homes of a run: the sources, sinks and updates of its steps. A planner walks with the
// same, which then move nothing.
class Residency {
 public:
  Residency(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train, Residents& residents);

  WeightSource& weights() { return *weights_; }
  LayerInputs& inputs() { return *inputs_; }
  // Embedding and head, where they are streamed; else null.
  StreamedVocabulary* vocabulary() { return vocabulary_ ? &*vocabulary_ : nullptr; }

  void begin_step();
  // Where this step's gradients go. It is good until the next step's.
  GradientSink& gradients(const StepBuffers& buffers, const UpdateArgs& args);
  // Whether parts are updated as soon as their gradients are whole.
  bool updates_early() const;
  // The gradient's norm and the factor that clips it, on the device.
  void norm(const Context& ctx, const StepBuffers& buffers, double loss_scale);
  // Everything that was not updated early.
  void update(const Context& ctx, const StepBuffers& buffers, const UpdateArgs& args);
  // There will be no update of these gradients.
  void skip_update() { residents_.gradients.used_all(); }

  // The gradients of the last step, on the device or at home, when they are there. Not with early updates.
  std::vector<Tensor> step_gradients() const;
  // Throws what went wrong on a thread of the host; waits for nothing.
  void check() const;
  // Waits for updates beside the stream: then the homes are whole.
  void finish() const;
  // What was moved for whoever computes, asked for so far; and what updates have moved and done.
  Traffic traffic() const noexcept;
  void add_updates(Traffic& traffic) const noexcept;
  // Weights at home were written by somebody else.
  void refresh(const Context& ctx);

 private:
  // Updates each part beside backward.
  class EarlyPartUpdates;

  GradientSink& sink();
  // When all of a part's gradient is where it stays.
  Moment arrived(int part) const;

  const ParameterList& parameters_;
  const TrainConfig& train_;
  Residents& residents_;
  Update update_;
  // Before all that uses them, so that they outlive it: an update waits for what comes down, and a weight that goes up
  // for its update. Layers' inputs have a lane of their own, so that they do not wait behind such a weight.
  Lane down_;
  Lane up_;
  Lane inputs_up_;
  std::optional<PartUpdates> updates_;
  std::optional<StreamedVocabulary> vocabulary_;
  std::optional<HostGradients> host_gradients_;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<LayerInputs> inputs_;
  std::unique_ptr<GradientSink> early_;
};

}  // namespace tigon
