#include "train/residency/residency.hpp"

namespace tigon {

class Residency::EarlyHostUpdates final : public GradientSink {
 public:
  EarlyHostUpdates(Residency& residency, const UpdateArgs& args) : r_(residency), args_(args) {}
  Gradient at(const Context& ctx, int parameter) override { return r_.host_gradients_->at(ctx, parameter); }
  void complete(const Context& ctx, int part) override {
    r_.host_gradients_->complete(ctx, part);
    r_.host_update_->part(ctx, part, r_.host_gradients_->arrived(part), {}, false, args_);
  }
  void finish(const Context& ctx) override { r_.host_gradients_->finish(ctx); }

 private:
  Residency& r_;
  UpdateArgs args_;
};

Residency::Residency(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train,
                     Residents& residents)
    : parameters_(parameters),
      train_(train),
      residents_(residents),
      update_(parameters, train),
      down_(train.device, "copy to the host"),
      up_(train.device, "copy to the device"),
      inputs_up_(train.device, "copy of a layer's input to the device") {
  const Homes& homes = train.memory.homes;
  if (homes.states == Home::host) {
    host_update_.emplace(parameters, train, residents, up_);
    host_gradients_.emplace(parameters, residents, up_, down_);
  }
  const HostUpdate* updates = host_update_ ? &*host_update_ : nullptr;
  if (homes.weights == Home::host) {
    weights_ = std::make_unique<StreamedWeights>(parameters, residents, up_, updates);
  } else {
    weights_ = std::make_unique<ResidentWeights>(parameters, residents, updates);
  }
  if (homes.layer_inputs == Home::host) {
    inputs_ = std::make_unique<HostInputs>(train.micros_at_once(), residents.layer_inputs, inputs_up_, down_);
  } else {
    inputs_ = std::make_unique<ResidentInputs>(model.layers, train.micros_at_once());
  }
}

bool Residency::updates_early() const {
  // The loss scale is divided out with the clipping factor.
  const LossScaleRule& scale = train_.precision.loss_scale;
  const bool may = train_.clip == 0 && !scale.dynamic && scale.initial == 1 && !train_.turns();
  return train_.memory.update_early || (host_update_ && may);
}

void Residency::begin_step() {
  check();
  residents_.gradients.begin_step();
  if (host_gradients_) host_gradients_->begin_step();
}

GradientSink& Residency::gradients(const StepBuffers& buffers, const UpdateArgs& args) {
  if (updates_early()) {
    if (host_update_) {
      early_ = std::make_unique<EarlyHostUpdates>(*this, args);
    } else {
      early_ = std::make_unique<EarlyUpdates>(update_, residents_, buffers, args);
    }
    return *early_;
  }
  if (host_gradients_) return *host_gradients_;
  return residents_.gradients;
}

void Residency::norm(const Context& ctx, const StepBuffers& buffers, double loss_scale) {
  update_.norm(ctx, residents_, buffers, loss_scale);
}

void Residency::update(const Context& ctx, const StepBuffers& buffers, const UpdateArgs& args) {
  if (!host_update_) return update_.all(ctx, residents_, buffers, args);
  const Lane::Copy clip{.to = residents_.host_clip, .from = buffers.clip()};
  const Moment known = down_.copy(ctx, {&clip, 1});
  for (int part = 0; part < static_cast<int>(parameters_.parts.size()); ++part) {
    host_update_->part(ctx, part, host_gradients_->arrived(part), known, true, args);
  }
}

std::vector<Tensor> Residency::step_gradients() const {
  if (!host_gradients_) return residents_.gradients.all();
  std::vector<Tensor> tensors;
  for (int part = 0; part < static_cast<int>(parameters_.parts.size()); ++part) host_gradients_->arrived(part).wait();
  for (const TrainedParameter& trained : residents_.parameters) tensors.push_back(trained.gradient);
  return tensors;
}

void Residency::check() const {
  if (host_update_) host_update_->check();
}

void Residency::finish() const {
  if (host_update_) host_update_->finish();
}

Traffic Residency::traffic() const noexcept {
  return {.up_bytes = up_.bytes() + inputs_up_.bytes(),
          .down_bytes = down_.bytes(),
          .update_seconds = host_update_ ? host_update_->seconds() : 0.0};
}

void Residency::refresh(const Context& ctx) {
  if (host_update_) host_update_->refresh(ctx);
}

}  // namespace tigon
