#include "train/residency/streamed_weights.hpp"

#include "train/residency/nf4_weights.hpp"

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
    for (const Tensor& home : residents_.parameters[static_cast<size_t>(i)].weight_at_home()) {
      slots.emplace_back(ctx, parameters_.all[static_cast<size_t>(i)].name, home.dtype,
                         std::span<const int64_t>(home.sizes, static_cast<size_t>(home.rank)), MemoryClass::weights);
      copies.push_back({.to = slots.back(), .from = home});
    }
  }
  Moment there = up_.copy(ctx, copies, updates_ ? updates_->updated(part) : Moment());
  coming_.insert_or_assign(part, InFlight(std::move(slots), std::move(there)));
}

std::vector<OwnedTensor> StreamedWeights::whole(const Context& ctx, const Part& part,
                                                std::vector<OwnedTensor> come) const {
  std::vector<OwnedTensor> weights;
  auto next = come.begin();
  for (int i = part.begin; i < part.end; ++i) {
    const size_t in_nf4 = residents_.parameters[static_cast<size_t>(i)].in_nf4.size();
    if (in_nf4 == 0) {
      weights.push_back(std::move(*next++));
      continue;
    }
    std::vector<ops::Nf4> parts;
    for (size_t k = 0; k < in_nf4; ++k, next += 4)
      parts.push_back({.codes = next[0], .scale_codes = next[1], .group_scales = next[2], .offset = next[3]});
    weights.push_back(whole_of_nf4(ctx, parameters_.all[static_cast<size_t>(i)], parts, dtype_));
  }
  return weights;
}

WeightLease StreamedWeights::acquire(const Context& ctx, int part, int next) {
  if (!coming_.contains(part)) fetch(ctx, part);
  if (updates_) updates_->hold(ctx, part);  // the copy waits for it too; so it is known who kept the step waiting
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  std::vector<OwnedTensor>& slots = leased_[&p] = whole(ctx, p, coming_.at(part).join(ctx));
  coming_.erase(part);
  // Here and not before the wait: it begins when the part before this one is done, and needs no third slot.
  if (next >= 0 && !coming_.contains(next)) fetch(ctx, next);
  return {this, p, std::vector<Tensor>(slots.begin(), slots.end())};
}

}  // namespace tigon
