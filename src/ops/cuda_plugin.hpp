#pragma once

#include "backend/backend.hpp"

namespace tigon::ops {

// The CUDA backend's table, from libtigon_cuda.so, opened at the first call. It is looked for beside this library, then
// on the loader's path; TIGON_CUDA_LIBRARY names it outright. Throws Error saying what is missing: the library or,
// unless it is only assumed, a GPU.
const Backend& cuda_plugin(Device device);

}  // namespace tigon::ops
