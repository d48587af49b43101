#pragma once

#include <functional>

#include "tigon/train/prediction.hpp"

namespace tigon {

// What the machine does in such a run.
using RatesOf = std::function<Rates(const TrainConfig&)>;

// What to switch on next, in the study's order, each with what it would save here and what a step would then take.
struct Advice {
  std::string flag;  // "--recompute selective"
  std::string why;
  int64_t total_bytes = 0;  // of the plan with it, and with everything above it
  SpaceBytes bytes{};       // the same, place by place
  double seconds = 0;       // of such a step at least; 0: not known
  bool instead = false;     // of the one above it; those below do without
};
// `meant`: the device of the run, where `train` is planned with another's kernels. Without `rates` no times.
std::vector<Advice> advice(const ModelConfig& model, const ParameterList& parameters, TrainConfig train, Device meant,
                           const RatesOf& rates = {});

// What the host can do without, one after the other, each with what the run would take then: states in fewer bits, and
// then what a disk can hold.
struct HostAdvice {
  std::string flag;  // "--offload weights=host,gradients=host,states=nvme"
  SpaceBytes bytes;
  DiskTraffic step;
  double seconds = 0;  // of such a step at least; 0: not known
};
std::vector<HostAdvice> host_advice(const ModelConfig& model, const ParameterList& parameters, TrainConfig train,
                                    const RatesOf& rates = {});

}  // namespace tigon
