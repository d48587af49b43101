#include "train/residency/streamed_weights.hpp"

namespace tigon {

void StreamedWeights::fetch(const Context& ctx, int part) {
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  std::vector<OwnedTensor> slots;
  std::vector<Lane::Copy> copies;
  for (int i = p.begin; i < p.end; ++i) {
    if (vocabulary_ && vocabulary_->has(i)) {
      slots.emplace_back();
      continue;
    }
    const Parameter& parameter = parameters_.all[static_cast<size_t>(i)];
    const Tensor& home = residents_.parameters[static_cast<size_t>(i)].weight;
    slots.emplace_back(ctx, parameter.name, home.dtype, parameter.sizes, MemoryClass::weights);
    copies.push_back({.to = slots.back(), .from = home});
  }
  Moment there = up_.copy(ctx, copies, updates_ ? updates_->updated(part) : Moment());
  coming_.insert_or_assign(part, InFlight(std::move(slots), std::move(there)));
}

WeightLease StreamedWeights::acquire(const Context& ctx, int part, int next) {
  if (!coming_.contains(part)) fetch(ctx, part);
  if (updates_) updates_->hold(ctx, part);  // the copy waits for it too; so it is known who kept the step waiting
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  std::vector<OwnedTensor>& slots = leased_[&p] = coming_.at(part).join(ctx);
  coming_.erase(part);
  // Here and not before the wait: it begins when the part before this one is done, and needs no third slot.
  if (next >= 0 && !coming_.contains(next)) fetch(ctx, next);
  return {this, p, std::vector<Tensor>(slots.begin(), slots.end())};
}

}  // namespace tigon
