#include "train/residency/host_gradients.hpp"

#include "tigon/core/scope.hpp"
#include "tigon/ops/global_norm.hpp"

namespace tigon {

HostGradients::HostGradients(const ParameterList& parameters, Residents& residents, Lane& up, Lane& down,
                             const StreamedVocabulary* vocabulary)
    : parameters_(parameters),
      residents_(residents),
      up_(up),
      down_(down),
      vocabulary_(vocabulary),
      first_piece_{0},
      places_(parameters.all.size()),
      arrived_(parameters.parts.size()) {
  const Device device = residents.norm_pieces.view.device;
  for (int part = 0; part < static_cast<int>(parameters.parts.size()); ++part) {
    const Part& p = parameters.parts[static_cast<size_t>(part)];
    part_of_.insert(part_of_.end(), static_cast<size_t>(p.end - p.begin), part);
  }
  for (const Parameter& p : parameters.all) {
    first_piece_.push_back(first_piece_.back() + (p.trains ? ops::norm_pieces(device, p.elements()) : 0));
  }
  begin_step();
}

Gradient HostGradients::at(const Context& ctx, int parameter) {
  if (!parameters_.all[static_cast<size_t>(parameter)].trains) return {};
  Place& place = places_[static_cast<size_t>(parameter)];
  const size_t part = static_cast<size_t>(part_of(parameter));
  if (!place.tensor.view.present()) {
    const Parameter& p = parameters_.all[static_cast<size_t>(parameter)];
    const Tensor& home = residents_.parameters[static_cast<size_t>(parameter)].gradient;
    place.tensor = {ctx, p.name + ".grad", home.dtype, p.sizes, MemoryClass::gradients};
    // What earlier micro-batches have added up comes back, so that the sums are those of gradients that stay.
    if (added_[part]) {
      const Lane::Copy copy{.to = place.tensor, .from = home};
      up_.copy(ctx, {&copy, 1}, arrived_[part]).hold(ctx);
      place.written = true;
    }
  }
  return {.tensor = place.tensor, .accumulate = std::exchange(place.written, true)};
}

void HostGradients::complete(const Context& ctx, int part) {
  const Scope scope(ctx, "gradients leave", part);
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  std::vector<OwnedTensor> tensors;
  std::vector<Tensor> views;
  std::vector<Lane::Copy> copies;
  std::vector<Moment> home;
  int end = p.trained;
  for (int i = p.trained; i < p.end; ++i) {
    if (vocabulary_ && vocabulary_->has(i)) {  // the last of its part
      home.push_back(vocabulary_->arrived(i));
      continue;
    }
    end = i + 1;
    Place& place = places_[static_cast<size_t>(i)];
    views.push_back(place.tensor);
    copies.push_back({.to = residents_.parameters[static_cast<size_t>(i)].gradient, .from = place.tensor});
    tensors.push_back(std::move(place.tensor));
    place.written = false;
  }
  if (!views.empty()) ops::global_norm(ctx, {.tensors = views, .pieces = pieces(p.trained, end)});
  finish(ctx);
  const Moment sent = down_.copy(ctx, copies);
  home.push_back(sent);
  arrived_[static_cast<size_t>(part)] = Moment::all(std::move(home));
  added_[static_cast<size_t>(part)] = true;
  leaving_ = InFlight(std::move(tensors), sent);
}

void HostGradients::finish(const Context& ctx) { (void)leaving_.join(ctx); }

}  // namespace tigon
