#include "train/residency/nf4_weights.hpp"

#include "train/update.hpp"

namespace tigon {

WeightLease Nf4Weights::acquire(const Context& ctx, int part, int) {
  if (updates_) updates_->hold(ctx, part);
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  std::vector<OwnedTensor> slots;
  std::vector<Tensor> weights;
  for (int i = p.begin; i < p.end; ++i) {
    const Parameter& parameter = parameters_.all[static_cast<size_t>(i)];
    const TrainedParameter& trained = residents_.parameters[static_cast<size_t>(i)];
    if (trained.in_nf4.empty()) {
      weights.push_back(trained.device_weight());
      continue;
    }
    slots.emplace_back(ctx, parameter.name, dtype_, parameter.sizes, MemoryClass::weights);
    weights.push_back(slots.back());
    for (size_t k = 0; k < parameter.parts.size(); ++k) {
      const ParameterPart& rows = parameter.parts[k];
      ops::nf4_dequantize(
          ctx, {.from = trained.in_nf4[k].view(),
                .y = flat_slice(slots.back(), rows.begin * parameter.sizes[1], parameter.elements_of(rows))});
    }
  }
  if (!slots.empty()) leased_.insert_or_assign(&p, std::move(slots));
  return {this, p, std::move(weights)};
}

}  // namespace tigon
