#pragma once

#include "backend/backend.hpp"

// The ops on a GPU. Each books its scratch, returns when ctx is measuring, and then only launches on ctx.stream: no
// waiting, no allocation, so that a step can be captured into a CUDA graph.
namespace tigon::cuda {

TIGON_BACKEND_OPS(TIGON_DECLARE_OP)

}  // namespace tigon::cuda
