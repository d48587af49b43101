#pragma once

#include "backend/backend.hpp"

// The SIMD backend. One source per op, compiled for every instruction set and chosen at run time (Highway); rows are
// shared among threads in blocks whose bounds depend on the shape alone, so results do not depend on the thread count.
namespace tigon::cpu {

const Backend& backend();

TIGON_BACKEND_OPS(TIGON_DECLARE_OP)

}  // namespace tigon::cpu
