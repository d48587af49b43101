#pragma once

#include "backend/backend.hpp"

namespace tigon::cuda {

const DeviceServices& services();

}  // namespace tigon::cuda
