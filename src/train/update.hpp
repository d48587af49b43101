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

// The share of a state that belongs to some elements of its parameter.
Tensor state_slice(const TrainedParameter::State& state, int64_t first, int64_t elements);

// Some elements of a parameter and all that an update of them reads and writes, flat, where whoever updates reaches it.
struct UpdatePiece {
  int parameter = 0;
  int64_t first = 0;
  Tensor weight, gradient;
  std::vector<Tensor> states;  // in the order of TrainedParameter's
};
// f(tensor, use) for each of its tensors.
enum class Use : uint8_t { read, written, changed };
template <class F>
void for_each_tensor(UpdatePiece& piece, const TrainConfig& train, const F& f) {
  f(piece.weight, train.precision.master ? Use::written : Use::changed);
  f(piece.gradient, Use::read);
  for (Tensor& state : piece.states) f(state, Use::changed);
}
// Where everything is at home.
UpdatePiece piece_at_home(const Residents& r, int parameter, int64_t first, int64_t elements);

// One of its states, by name; absent where the optimizer keeps none of it.
Tensor state_of(const UpdatePiece& piece, const ParameterList& parameters, const TrainConfig& train,
                std::string_view name);

// What the optimizer does with a piece, by whoever ctx is.
void update_piece(const Context& ctx, const ParameterList& parameters, const TrainConfig& train,
                  const UpdatePiece& piece, const Tensor& grad_scale, const UpdateArgs& args);

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
