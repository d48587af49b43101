#include "train/residency/nf4_weights.hpp"

#include "train/update.hpp"

namespace tigon {

OwnedTensor whole_of_nf4(const Context& ctx, const Parameter& parameter, const std::vector<ops::Nf4>& parts,
                         DType dtype) {
  OwnedTensor whole(ctx, parameter.name, dtype, parameter.sizes, MemoryClass::weights);
  for (size_t k = 0; k < parts.size(); ++k) {
    const ParameterPart& rows = parameter.parts[k];
    ops::nf4_dequantize(
        ctx, {.from = parts[k], .y = flat_slice(whole, rows.begin * parameter.sizes[1], parameter.elements_of(rows))});
  }
  return whole;
}

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
    std::vector<ops::Nf4> parts;
    for (const Nf4Home& home : trained.in_nf4) parts.push_back(home.view());
    slots.push_back(whole_of_nf4(ctx, parameter, parts, dtype_));
    weights.push_back(slots.back());
  }
  if (!slots.empty()) leased_.insert_or_assign(&p, std::move(slots));
  return {this, p, std::move(weights)};
}

}  // namespace tigon
