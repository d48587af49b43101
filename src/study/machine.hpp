#pragma once

#include "json/json.hpp"
#include "tigon/core/device.hpp"

namespace tigon {

// What a study ran on, as its readers want to know it.
Json machine_json(Device device);

}  // namespace tigon
