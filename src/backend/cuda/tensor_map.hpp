#pragma once

#include <cuda.h>

#include "tigon/core/tensor.hpp"

namespace tigon::cuda {

// How TMA (sm_90) fetches `rows` rows × 64 columns of a head of t, [batch, seq, heads, D] in 16 bits with D
// contiguous: into rows of 128 bytes, permuted as PanelTile reads them, zeros beyond the tensor. False where it cannot.
bool map_heads(const Tensor& t, int rows, CUtensorMap& map);

// The same of a matrix, [rows, columns] in 16 bits with columns contiguous.
bool map_panels(const Tensor& t, int rows, CUtensorMap& map);

// How it fetches `columns` of `at_a_time` rows of f32, of which there are `rows`, `pitch` apart and as long.
bool map_row_parts(const float* data, int64_t rows, int64_t pitch, int columns, CUtensorMap& map, int at_a_time = 1);

}  // namespace tigon::cuda
