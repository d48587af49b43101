#include "train/residency/residency.hpp"

namespace tigon {

namespace {

// For a lane that has a ring.
std::optional<DiskCopies> disk_copies(const TrainConfig& train, const Residents& residents, const Buffer& ring) {
  if (ring.bytes() == 0) return {};
  return std::optional<DiskCopies>(std::in_place, residents.disk, train.device, ring, train.memory.disk.piece);
}

}  // namespace

class Residency::EarlyPartUpdates final : public GradientSink {
 public:
  EarlyPartUpdates(Residency& residency, const UpdateArgs& args) : r_(residency), args_(args) {}
  Gradient at(const Context& ctx, int parameter) override { return r_.sink().at(ctx, parameter); }
  void complete(const Context& ctx, int part) override {
    r_.sink().complete(ctx, part);
    r_.updates_->part(ctx, part, r_.arrived(part), {}, {}, args_);
  }
  void finish(const Context& ctx) override { r_.sink().finish(ctx); }

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
      down_(train.device, "copy to the host", disk_copies(train, residents, residents.down_ring)),
      up_(train.device, "copy to the device", disk_copies(train, residents, residents.up_ring)),
      inputs_up_(train.device, "copy of a layer's input to the device",
                 disk_copies(train, residents, residents.inputs_ring)) {
  const Homes& homes = train.memory.homes;
  if (train.memory.moves_updates()) updates_.emplace(parameters, train, residents);
  if (train.streams_vocabulary()) vocabulary_.emplace(parameters, train, residents, *updates_, up_, down_);
  if (homes.gradients != Home::device) host_gradients_.emplace(parameters, residents, up_, down_, vocabulary());
  const PartUpdates* updates = updates_ ? &*updates_ : nullptr;
  const DType dtype = train.precision.weight;
  if (homes.weights != Home::device) {
    weights_ = std::make_unique<StreamedWeights>(parameters, residents, dtype, up_, updates, vocabulary());
  } else if (train.base == BaseFormat::nf4) {
    weights_ = std::make_unique<Nf4Weights>(parameters, residents, dtype, updates);
  } else {
    weights_ = std::make_unique<ResidentWeights>(parameters, residents, updates);
  }
  if (homes.layer_inputs != Home::device) {
    inputs_ = std::make_unique<HostInputs>(train.micros_at_once(), residents.layer_inputs, inputs_up_, down_);
  } else {
    inputs_ = std::make_unique<ResidentInputs>(model.layers, train.micros_at_once());
  }
}

bool Residency::updates_early() const {
  // The loss scale is divided out with the clipping factor.
  const LossScaleRule& scale = train_.precision.loss_scale;
  const bool may = train_.clip == 0 && !scale.dynamic && scale.initial == 1 && !train_.turns();
  return train_.memory.update_early || (updates_ && may);
}

void Residency::begin_step() {
  check();
  residents_.gradients.begin_step();
  if (host_gradients_) host_gradients_->begin_step();
  if (vocabulary_) vocabulary_->begin_step();
}

GradientSink& Residency::gradients(const StepBuffers& buffers, const UpdateArgs& args) {
  if (updates_early()) {
    if (updates_) {
      early_ = std::make_unique<EarlyPartUpdates>(*this, args);
    } else {
      early_ = std::make_unique<EarlyUpdates>(update_, residents_, buffers, args);
    }
    return *early_;
  }
  return sink();
}

GradientSink& Residency::sink() {
  if (host_gradients_) return *host_gradients_;
  return residents_.gradients;
}

Moment Residency::arrived(int part) const { return host_gradients_ ? host_gradients_->arrived(part) : Moment(); }

void Residency::norm(const Context& ctx, const StepBuffers& buffers, double loss_scale) {
  if (vocabulary_) {
    vocabulary_->norm(ctx, parameters_.embedding, host_gradients_->pieces_of(parameters_.embedding));
    if (parameters_.head != parameters_.embedding)
      vocabulary_->norm(ctx, parameters_.head, host_gradients_->pieces_of(parameters_.head));
  }
  update_.norm(ctx, residents_, buffers, loss_scale);
}

void Residency::update(const Context& ctx, const StepBuffers& buffers, const UpdateArgs& args) {
  if (!updates_) return update_.all(ctx, residents_, buffers, args);
  Moment known;
  if (host_updates(train_.memory.updater)) {
    const Lane::Copy clip{.to = residents_.host_clip, .from = buffers.clip()};
    known = down_.copy(ctx, {&clip, 1});
  }
  for (int part = 0; part < static_cast<int>(parameters_.parts.size()); ++part) {
    updates_->part(ctx, part, arrived(part), buffers.clip(), known, args);
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
  if (updates_) updates_->check();
}

void Residency::finish() const {
  if (updates_) updates_->finish();
}

Traffic Residency::traffic() const noexcept {
  return {.up_bytes = up_.bytes() + inputs_up_.bytes(), .down_bytes = down_.bytes()};
}

void Residency::add_updates(Traffic& traffic) const noexcept {
  if (updates_) updates_->add_to(traffic);
}

void Residency::refresh(const Context& ctx) {
  if (updates_) updates_->refresh(ctx, up_);
}

}  // namespace tigon
