#pragma once

#include "tigon/train/prediction.hpp"

namespace tigon::app {

// What a step's speed is compared with, in a fraction of a second. Nothing where memory is too short to measure it.
Rates measured_rates(const TrainConfig& train);

}  // namespace tigon::app
