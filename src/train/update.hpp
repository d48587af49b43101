#pragma once

#include "train/residents.hpp"

namespace tigon {

// What changes from one update to the next.
struct UpdateArgs {
  double lr = 0.0;
  int64_t adam_step = 1;  // counts the updates that were made, from 1
  double loss_scale = 1.0;
};

// Some elements of a contiguous tensor, flat. Of an absent one an absent one.
Tensor flat_slice(const Tensor& t, int64_t first, int64_t elements);

// What AdamW takes of a parameter. The copy is of a master's.
struct AdamwTensors {
  Tensor param, grad, m, v, param_copy;
  AdamwTensors slice(int64_t first, int64_t elements) const;
};
AdamwTensors adamw_tensors(const TrainedParameter& trained, const Tensor& gradient);

// AdamW for the elements of a parameter from `first` on, by whoever ctx is, over flat tensors that it reaches.
void update_piece(const Context& ctx, const ParameterList& parameters, const TrainConfig& train, int parameter,
                  int64_t first, const AdamwTensors& tensors, const Tensor& grad_scale, const UpdateArgs& args);

// The optimizer's half of a step, over what stays: the norm of the gradients, and AdamW.
class Update {
 public:
  Update(const ParameterList& parameters, const TrainConfig& train) : parameters_(parameters), train_(train) {}

  // The gradient's norm and the factor that clips it; both stay on the device.
  void norm(const Context& ctx, Residents& r, const StepBuffers& buffers, double loss_scale) const;
  // Every parameter; each gradient dies with its update.
  void all(const Context& ctx, Residents& r, const StepBuffers& buffers, const UpdateArgs& args) const;
  // One part, whose norm is for the log alone: nothing is clipped.
  void part(const Context& ctx, Residents& r, const StepBuffers& buffers, int part, const UpdateArgs& args) const;

 private:
  void part_by(const Context& ctx, Residents& r, int part, const Tensor& grad_scale, const UpdateArgs& args) const;

  const ParameterList& parameters_;
  const TrainConfig& train_;
};

// Updates each part as soon as its gradient is complete, which then dies: one part's gradients exist at a time.
class EarlyUpdates final : public GradientSink {
 public:
  EarlyUpdates(const Update& update, Residents& r, const StepBuffers& buffers, const UpdateArgs& args)
      : update_(update), r_(r), buffers_(buffers), args_(args) {}
  Gradient at(const Context& ctx, int parameter) override { return r_.gradients.at(ctx, parameter); }
  void complete(const Context& ctx, int part) override { update_.part(ctx, r_, buffers_, part, args_); }

 private:
  const Update& update_;
  Residents& r_;
  const StepBuffers& buffers_;
  const UpdateArgs& args_;
};

}  // namespace tigon
