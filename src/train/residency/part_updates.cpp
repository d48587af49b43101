#include "train/residency/part_updates.hpp"

namespace tigon {

PartUpdates::PartUpdates(const ParameterList& parameters, const TrainConfig& train, const Residents& residents)
    : parameters_(parameters), train_(train), residents_(residents), updated_(parameters.parts.size()) {
  if (host_updates(train.memory.updater)) host_.emplace(parameters, train, residents);
  if (device_updates(train.memory.updater)) device_.emplace(parameters, train, residents);
}

void PartUpdates::part(const Context& compute, int part, const Moment& gradient, const Tensor& clip,
                       const Moment& host_clip, const UpdateArgs& args) {
  if (compute.measuring()) {
    if (host_) host_->book(part);
    return;
  }
  const auto job =
      std::make_shared<UpdateJob>(parameters_, train_, part, (host_ ? 1 : 0) + (device_ ? 1 : 0),
                                  UpdateJob::Begin{.ready = Moment::all({gradient, Moment::of(compute)}),
                                                   .scale = host_clip,
                                                   .device_scale = clip,
                                                   .host_scale = clip.present() ? residents_.host_clip.view : Tensor{},
                                                   .args = args,
                                                   .watch = beside(compute)});
  if (device_) device_->help(job);
  if (host_) host_->help(job);
  // Not before: where one of them finds no thread, nobody would ever end what others wait for.
  updated_[static_cast<size_t>(part)] = job->done();
}

void PartUpdates::check() const {
  for (const Moment& moment : updated_) moment.check();
}

void PartUpdates::finish() const {
  for (const Moment& moment : updated_) moment.wait();
}

void PartUpdates::add_to(Traffic& traffic) const noexcept {
  if (host_) {
    traffic.up_bytes += host_->up_bytes();
    traffic.update_seconds += host_->seconds();
    traffic.updated_by_host += host_->elements();
  }
  if (device_) {
    traffic.up_bytes += device_->up_bytes();
    traffic.down_bytes += device_->down_bytes();
    traffic.updated_by_device += device_->elements();
  }
}

void PartUpdates::refresh(const Context& compute, Lane& up) {
  for (size_t part = 0; part < updated_.size(); ++part) {
    const Part& p = parameters_.parts[part];
    std::vector<Lane::Copy> copies;
    for (int i = p.begin; i < p.end; ++i) {
      const TrainedParameter& trained = residents_.parameters[static_cast<size_t>(i)];
      if (trained.on_device.view.present()) copies.push_back({.to = trained.on_device, .from = trained.weight});
    }
    if (!copies.empty()) updated_[part] = up.copy(compute, copies);
  }
}

}  // namespace tigon
