#pragma once

#include <span>

#include "tigon/model/block.hpp"
#include "tigon/train/train_config.hpp"
#include "train/residents.hpp"

namespace tigon {

// What changes from one update to the next.
struct UpdateArgs {
  double lr = 0.0;
  int64_t adam_step = 1;  // counts the updates that were made, from 1
  double loss_scale = 1.0;
};

// One training step, as a sequence of op calls. It owns no memory and knows no device: with a Context in measure mode
// it is its own planner.
class Step {
 public:
  Step(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train);

  // Loss and gradients of micro-batch 0; with `early` also the update of each part when its gradient is complete.
  void forward_backward(const Context& ctx, Residents& r, const StepBuffers& buffers,
                        const UpdateArgs* early = nullptr) const;
  // The gradient's norm and the factor that clips it; both stay on the device.
  void norm(const Context& ctx, Residents& r, const StepBuffers& buffers, double loss_scale) const;
  // AdamW on every parameter; each gradient dies with its update.
  void update(const Context& ctx, Residents& r, const StepBuffers& buffers, const UpdateArgs& args) const;
  // The loss alone, of micro-batch 0.
  void evaluate(const Context& ctx, Residents& r, const StepBuffers& buffers) const;

  StageRuns& runs() const noexcept { return runs_; }

 private:
  void update_one(const Context& ctx, Residents& r, int parameter, const Tensor& grad_scale,
                  const UpdateArgs& args) const;
  void update_part(const Context& ctx, Residents& r, const StepBuffers& buffers, int64_t part,
                   std::span<const int> parameters, const UpdateArgs& args) const;
  OwnedTensor loss_and_grad(const Context& ctx, Residents& r, const StepBuffers& buffers, const StreamEnd& stream,
                            bool with_grad) const;

  const ModelConfig& model_;
  const ParameterList& parameters_;
  const TrainConfig& train_;
  Block block_;
  mutable StageRuns runs_{};
};

}  // namespace tigon
