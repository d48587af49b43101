#pragma once

#include "train/residents.hpp"

namespace tigon {

// What changes from one update to the next.
struct UpdateArgs {
  double lr = 0.0;
  int64_t adam_step = 1;  // counts the updates that were made, from 1
  double loss_scale = 1.0;
};

// Some elements of a parameter, flat, with what belongs to them.
struct UpdatedElements {
  Tensor weight;
  Tensor gradient;
  Tensor master;  // absent where the weight itself is updated
  Tensor m, v;
  int64_t first = 0;  // of all of the parameter's
};

// AdamW for them, by whoever ctx is, over tensors that it reaches; and for all of one parameter.
void update_elements(const Context& ctx, const ParameterList& parameters, const TrainConfig& train, int index,
                     const UpdatedElements& elements, const Tensor& grad_scale, const UpdateArgs& args);
void update_parameter(const Context& ctx, const ParameterList& parameters, const TrainConfig& train, int index,
                      const TrainedParameter& trained, const Tensor& gradient, const Tensor& grad_scale,
                      const UpdateArgs& args);

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
