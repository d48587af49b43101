#include "train/residency/host_gradients.hpp"

#include "tigon/core/scope.hpp"
#include "tigon/ops/global_norm.hpp"

namespace tigon {

HostGradients::HostGradients(const ParameterList& parameters, Residents& residents, Lane& up, Lane& down)
    : parameters_(parameters),
      residents_(residents),
      up_(up),
      down_(down),
      first_piece_{0},
      places_(parameters.all.size()),
      arrived_(parameters.parts.size()) {
  const Device device = residents.norm_pieces.view.device;
  for (const Part& part : parameters.parts) {
    int64_t pieces = first_piece_.back();
    for (int i = part.begin; i < part.end; ++i) {
      part_of_.push_back(static_cast<int>(first_piece_.size()) - 1);
      pieces += ops::norm_pieces(device, parameters.all[static_cast<size_t>(i)].elements());
    }
    first_piece_.push_back(pieces);
  }
  begin_step();
}

Gradient HostGradients::at(const Context& ctx, int parameter) {
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
  for (int i = p.begin; i < p.end; ++i) {
    Place& place = places_[static_cast<size_t>(i)];
    views.push_back(place.tensor);
    copies.push_back({.to = residents_.parameters[static_cast<size_t>(i)].gradient, .from = place.tensor});
    tensors.push_back(std::move(place.tensor));
    place.written = false;
  }
  ops::global_norm(ctx, {.tensors = views,
                         .pieces = residents_.norm_pieces.view.slice(0, first_piece_[static_cast<size_t>(part)],
                                                                     first_piece_[static_cast<size_t>(part) + 1])});
  finish(ctx);
  arrived_[static_cast<size_t>(part)] = down_.copy(ctx, copies);
  added_[static_cast<size_t>(part)] = true;
  leaving_ = InFlight(std::move(tensors), arrived_[static_cast<size_t>(part)]);
}

void HostGradients::finish(const Context& ctx) { (void)leaving_.join(ctx); }

}  // namespace tigon
