#include "train/residency/layer_inputs.hpp"

namespace tigon {

void HostInputs::keep(const Context& ctx, int64_t layer, int64_t micro, OwnedTensor x) {
  const auto at = static_cast<size_t>(place(layer, micro));
  finish(ctx);
  const Lane::Copy copy{.to = homes_[at], .from = x};
  kept_[at] = down_.copy(ctx, {&copy, 1});
  std::vector<OwnedTensor> leaving;
  leaving.push_back(std::move(x));
  leaving_ = InFlight(std::move(leaving), kept_[at]);
}

void HostInputs::prefetch(const Context& ctx, int64_t layer, int64_t micro) {
  const int64_t at = place(layer, micro);
  if (coming_.contains(at)) return;
  const Tensor& home = homes_[static_cast<size_t>(at)];
  std::vector<OwnedTensor> slot;
  slot.emplace_back(ctx, "layers." + std::to_string(layer) + ".x", home.dtype,
                    std::span<const int64_t>(home.sizes, static_cast<size_t>(home.rank)), MemoryClass::layer_inputs);
  const Lane::Copy copy{.to = slot.back(), .from = home};
  Moment there = up_.copy(ctx, {&copy, 1}, kept_[static_cast<size_t>(at)]);
  coming_.emplace(at, InFlight(std::move(slot), std::move(there)));
}

OwnedTensor HostInputs::take(const Context& ctx, int64_t layer, int64_t micro) {
  prefetch(ctx, layer, micro);
  const auto coming = coming_.find(place(layer, micro));
  OwnedTensor x = std::move(coming->second.join(ctx).front());
  coming_.erase(coming);
  return x;
}

}  // namespace tigon
