#pragma once

#include "backend/cuda/attention.cuh"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

// Tiles of 64×64 in f32 for the plain kernels. 256 threads as 16×16: a thread owns the elements (ty + 16·i, tx + 16·j)
// of a product, i, j < 4.
namespace tigon::cuda {

inline constexpr int kPlainTile = 64;
inline constexpr int kPlainThreads = 256;

struct PlainTile {
  float at[kPlainTile][kPlainTile + 1];  // a column more, so that reading down a column finds other banks
};

__device__ __forceinline__ int plain_tx() { return static_cast<int>(threadIdx.x) % 16; }
__device__ __forceinline__ int plain_ty() { return static_cast<int>(threadIdx.x) / 16; }

// A 64×64 piece of a head, zero beyond its ends.
template <class T>
__device__ __forceinline__ void stage(PlainTile& tile, const T* head, int64_t row_stride, int64_t row, int64_t rows,
                                      int64_t column, int64_t columns) {
  for (int i = static_cast<int>(threadIdx.x); i < kPlainTile * kPlainTile; i += kPlainThreads) {
    const int r = i / kPlainTile, c = i % kPlainTile;
    const bool inside = row + r < rows && column + c < columns;
    tile.at[r][c] = inside ? load_one(head + (row + r) * row_stride + column + c) : 0.0f;
  }
}

// The elements of this thread into a tile.
__device__ __forceinline__ void put(PlainTile& tile, const float (&x)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) tile.at[plain_ty() + 16 * i][plain_tx() + 16 * j] = x[i][j];
  }
}

// x += a·bᵀ
__device__ __forceinline__ void add_product_transposed(float (&x)[4][4], const PlainTile& a, const PlainTile& b) {
#pragma unroll 8
  for (int k = 0; k < kPlainTile; ++k) {
    float left[4], right[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) left[i] = a.at[plain_ty() + 16 * i][k], right[i] = b.at[plain_tx() + 16 * i][k];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i][j] = fmaf(left[i], right[j], x[i][j]);
    }
  }
}

// x += a·b
__device__ __forceinline__ void add_product(float (&x)[4][4], const PlainTile& a, const PlainTile& b) {
#pragma unroll 8
  for (int k = 0; k < kPlainTile; ++k) {
    float left[4], right[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) left[i] = a.at[plain_ty() + 16 * i][k], right[i] = b.at[k][plain_tx() + 16 * i];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i][j] = fmaf(left[i], right[j], x[i][j]);
    }
  }
}

// x = 64 rows of one head times 64 rows of another, transposed, over all of D. Uses both tiles.
template <class T>
__device__ __forceinline__ void row_products(float (&x)[4][4], PlainTile& a, PlainTile& b, const T* left,
                                             int64_t left_stride, int64_t left_row, const T* right,
                                             int64_t right_stride, int64_t right_row, int64_t seq, int64_t dim) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) x[i][j] = 0.0f;
  }
  for (int64_t column = 0; column < dim; column += kPlainTile) {
    __syncthreads();  // the tiles may still be read
    stage(a, left, left_stride, left_row, seq, column, dim);
    stage(b, right, right_stride, right_row, seq, column, dim);
    __syncthreads();
    add_product_transposed(x, a, b);
  }
}

// The elements of this thread to 64 rows of a head, at the columns of a panel.
template <class T>
__device__ __forceinline__ void write_panel(T* head, int64_t row_stride, int64_t row, int64_t rows, int64_t column,
                                            int64_t columns, const float (&x)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t r = row + plain_ty() + 16 * i;
    if (r >= rows) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t c = column + plain_tx() + 16 * j;
      if (c < columns) store_one(head + r * row_stride + c, x[i][j]);
    }
  }
}

}  // namespace tigon::cuda
