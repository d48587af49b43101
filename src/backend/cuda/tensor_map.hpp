#pragma once

#include <cuda.h>

#include "tigon/core/tensor.hpp"

namespace tigon::cuda {

// How the copy engine (sm_90) fetches `rows` rows × 64 columns of a head of t, [batch, seq, heads, D] in 16 bits with D
// contiguous: into rows of 128 bytes, permuted as PanelTile reads them, zeros beyond the tensor. False where it cannot.
bool map_heads(const Tensor& t, int rows, CUtensorMap& map);

}  // namespace tigon::cuda
