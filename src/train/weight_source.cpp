#include "train/weight_source.hpp"

#include "train/residency/part_updates.hpp"

namespace tigon {

WeightLease::~WeightLease() {
  if (source_) source_->release(part_);
}

BlockTensors WeightLease::block(const std::array<int, kBlockWeightCount>& places) const {
  BlockTensors tensors{};
  for (size_t w = 0; w < places.size(); ++w) {
    if (places[w] >= 0) tensors[w] = (*this)[places[w]];
  }
  return tensors;
}

WeightLease ResidentWeights::acquire(const Context& ctx, int part, int) {
  if (updates_) updates_->hold(ctx, part);
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  std::vector<Tensor> weights;
  for (int i = p.begin; i < p.end; ++i)
    weights.push_back(residents_.parameters[static_cast<size_t>(i)].device_weight());
  return {this, p, std::move(weights)};
}

}  // namespace tigon
