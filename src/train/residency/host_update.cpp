#include "train/residency/host_update.hpp"

#include <chrono>

#include "tigon/core/scope.hpp"

namespace tigon {

HostUpdate::HostUpdate(const ParameterList& parameters, const TrainConfig& train, Residents& residents, Lane& up)
    : parameters_(parameters), train_(train), residents_(residents), up_(up), updated_(parameters.parts.size()) {}

std::vector<Lane::Copy> HostUpdate::copies_to_device(int part) const {
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  std::vector<Lane::Copy> copies;
  for (int i = p.begin; i < p.end; ++i) {
    const TrainedParameter& trained = residents_.parameters[static_cast<size_t>(i)];
    if (trained.on_device.view.present()) copies.push_back({.to = trained.on_device, .from = trained.weight});
  }
  return copies;
}

void HostUpdate::part(const Context& compute, int part, const Moment& gradient, const Moment& scale, bool scaled,
                      const UpdateArgs& args) {
  if (compute.measuring()) return;
  if (!worker_) worker_.emplace();
  Moment& updated = updated_[static_cast<size_t>(part)];
  updated = worker_->add([this, part, gradient, scale, scaled, args, watch = beside(compute)] {
    gradient.wait();
    scale.wait();
    const auto began = std::chrono::steady_clock::now();
    const Context host{.threads = train_.threads, .observer = watch};
    const Scope scope(host, "update on the host", part);
    const Part& p = parameters_.parts[static_cast<size_t>(part)];
    for (int i = p.begin; i < p.end; ++i) {
      const TrainedParameter& trained = residents_.parameters[static_cast<size_t>(i)];
      update_parameter(host, parameters_, train_, i, trained, trained.gradient,
                       scaled ? residents_.host_clip.view : Tensor{}, args);
    }
    nanoseconds_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
  });
  const std::vector<Lane::Copy> copies = copies_to_device(part);
  if (!copies.empty()) updated = up_.copy(compute, copies, updated);
}

void HostUpdate::check() const {
  for (const Moment& moment : updated_) moment.check();
}

void HostUpdate::finish() const {
  for (const Moment& moment : updated_) moment.wait();
}

void HostUpdate::refresh(const Context& compute) {
  for (int part = 0; part < static_cast<int>(updated_.size()); ++part) {
    const std::vector<Lane::Copy> copies = copies_to_device(part);
    if (!copies.empty()) updated_[static_cast<size_t>(part)] = up_.copy(compute, copies);
  }
}

}  // namespace tigon
