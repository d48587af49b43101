#pragma once

#include <map>

#include "train/residency/part_updates.hpp"
#include "train/weight_source.hpp"

namespace tigon {

// A matrix of which each part is in NF4, in memory of the step.
OwnedTensor whole_of_nf4(const Context& ctx, const Parameter& parameter, const std::vector<ops::Nf4>& parts,
                         DType dtype);

// Weights of which some stay on the device in NF4: a part's are whole for as long as it is leased, in memory of the
// step. Everything else is where it always is.
class Nf4Weights final : public WeightSource {
 public:
  Nf4Weights(const ParameterList& parameters, const Residents& residents, DType dtype, const PartUpdates* updates)
      : parameters_(parameters), residents_(residents), dtype_(dtype), updates_(updates) {}
  WeightLease acquire(const Context& ctx, int part, int next) override;

 private:
  void release(const Part& part) noexcept override { leased_.erase(&part); }

  const ParameterList& parameters_;
  const Residents& residents_;
  DType dtype_;
  const PartUpdates* updates_;
  std::map<const Part*, std::vector<OwnedTensor>> leased_;
};

}  // namespace tigon
