#pragma once

#include <map>

#include "train/residency/in_flight.hpp"
#include "train/residency/part_updates.hpp"
#include "train/residency/streamed_vocabulary.hpp"
#include "train/weight_source.hpp"

namespace tigon {

// Weights whose home is the host: a part's are on the device for as long as it is leased, and the next part's are on
// their way meanwhile. What comes in NF4 is made whole where it has arrived.
class StreamedWeights final : public WeightSource {
 public:
  // `updates`: which every part waits for. `vocabulary`: whose weights are in no lease.
  StreamedWeights(const ParameterList& parameters, const Residents& residents, DType dtype, Lane& up,
                  const PartUpdates* updates, const StreamedVocabulary* vocabulary)
      : parameters_(parameters),
        residents_(residents),
        dtype_(dtype),
        up_(up),
        updates_(updates),
        vocabulary_(vocabulary) {}
  WeightLease acquire(const Context& ctx, int part, int next) override;

 private:
  void release(const Part& part) noexcept override { leased_.erase(&part); }
  void fetch(const Context& ctx, int part);
  // The weights of what has come.
  std::vector<OwnedTensor> whole(const Context& ctx, const Part& part, std::vector<OwnedTensor> come) const;

  const ParameterList& parameters_;
  const Residents& residents_;
  DType dtype_;
  Lane& up_;
  const PartUpdates* updates_;
  const StreamedVocabulary* vocabulary_;
  std::map<int, InFlight> coming_;
  std::map<const Part*, std::vector<OwnedTensor>> leased_;
};

}  // namespace tigon
