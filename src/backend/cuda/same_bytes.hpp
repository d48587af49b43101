#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace tigon::cuda {

// Whether two stretches of device memory, aligned to 16 bytes, hold the same bytes. Waits for the answer.
// One call at a time on a device.
bool same_bytes(const void* a, const void* b, size_t bytes, cudaStream_t stream);

}  // namespace tigon::cuda
