#pragma once

#include "tigon/train/prediction.hpp"

namespace tigon::app {

// What a step's speed is compared with, in a fraction of a second. Nothing where memory is too short to measure it.
// `copy`: the rate of the device's memory too.
Rates measured_rates(const TrainConfig& train, bool copy = false);

}  // namespace tigon::app
