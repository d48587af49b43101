#pragma once

#include <map>
#include <optional>
#include <string>

#include "tigon/train/prediction.hpp"

namespace tigon::app {

// What a step's speed is compared with, each rate measured when it is first asked for, in a fraction of a second.
class RateBook {
 public:
  // For such a run. Nothing where memory is too short to measure it, or the disk cannot be written. `copy`: the rate of
  // the device's memory too.
  Rates of(const TrainConfig& train, bool copy = false);

 private:
  std::map<DType, double> gemm_;
  std::map<std::string, double> host_update_;  // by the types of its states
  std::optional<Rates> copies_, disk_;
  std::optional<double> copy_;
};

// Those of an H200, where there is no GPU; without the f32 products, which were not timed there.
Rates recorded_rates(const TrainConfig& train);
// "recorded on an H200: …"
std::string recorded_rates_text();

// "compute 0.105, up 0.002, down 0.001, update 0.006": what there is, in seconds.
std::string parts_text(const Prediction& step);

}  // namespace tigon::app
