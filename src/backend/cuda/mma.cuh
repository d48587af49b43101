#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/vec.cuh"

// Tensor cores by one warp (sm_80 and later): m16n8k16 products of bf16 or f16, summed in f32, with operands fetched
// from shared memory by ldmatrix and brought there by cp.async.
//
// Lane l of a warp holds, of a 16×8 sum: row l/4, columns 2·(l%4) and the next, in c[0], c[1]; the same columns of row
// l/4 + 8 in c[2], c[3]. Two sums side by side, packed to 16 bits, are a 16×16 left operand: softmax's result feeds the
// next product without leaving its registers.
namespace tigon::cuda {

template <class T>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ void ldmatrix_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// 16 bytes, or one float, from global to shared memory without passing registers; zeros when not `inside`.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_async_float(uint32_t to, const float* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from), "r"(inside ? 4 : 0) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_group 0;\n" ::: "memory"); }

// Two values as T in one register, the first in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack_two(float low, float high) {
  const float both[2] = {low, high};
  return pack<T, 2>(both);
}

// e^(x·ln 2)
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// Two sums side by side as a left operand.
template <class T>
__device__ __forceinline__ void as_left(uint32_t (&a)[4], const float (&first)[4], const float (&second)[4]) {
  a[0] = pack_two<T>(first[0], first[1]);
  a[1] = pack_two<T>(first[2], first[3]);
  a[2] = pack_two<T>(second[0], second[1]);
  a[3] = pack_two<T>(second[2], second[3]);
}

// Rows of D elements of 16 bits in shared memory. 16 bytes between rows make ldmatrix find 8 rows in 8 groups of banks.
template <int D>
struct MmaTile {
  static_assert(D % 16 == 0);
  static constexpr int kRowBytes = 2 * D + 16;
  static constexpr __host__ __device__ int bytes(int rows) { return rows * kRowBytes; }

  uint32_t address;  // in shared memory

  // The left operand: 16×16 at (row, column).
  __device__ __forceinline__ void left(uint32_t (&a)[4], int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    ldmatrix(a, at(row + lane % 16, column + lane / 16 * 8));
  }
  // The right operand, K-major (rows of the tile are its columns): rows [row, row + 16) × columns [column, column + 16)
  // as b[0], b[1] for the first 8 rows and b[2], b[3] for the others.
  __device__ __forceinline__ void right_k_major(uint32_t (&b)[4], int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    ldmatrix(b, at(row + lane / 16 * 8 + lane % 8, column + lane / 8 % 2 * 8));
  }
  // The right operand, MN-major: b[0], b[1] for the first 8 columns and b[2], b[3] for the others.
  __device__ __forceinline__ void right(uint32_t (&b)[4], int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    ldmatrix_transposed(b, at(row + lane % 16, column + lane / 16 * 8));
  }

  // Starts to copy `kRows` rows from row `first` of a head, by all kThreads threads; zeros beyond its rows and columns.
  template <int kRows, int kThreads, class T>
  __device__ __forceinline__ void fetch(const T* head, int64_t row_stride, int first, int rows, int dim) const {
    constexpr int kPieces = D / 8;  // of a row, 16 bytes each
#pragma unroll
    for (int i = 0; i < divide(kRows * kPieces, kThreads); ++i) {
      const int piece = i * kThreads + static_cast<int>(threadIdx.x);
      const int row = piece / kPieces, column = piece % kPieces * 8;
      if (kRows * kPieces % kThreads != 0 && row >= kRows) break;
      const bool inside = first + row < rows && column < dim;
      copy_async(at(row, column), inside ? head + int64_t{first + row} * row_stride + column : head, inside);
    }
  }

 private:
  static constexpr __host__ __device__ int divide(int a, int b) { return (a + b - 1) / b; }
  __device__ __forceinline__ uint32_t at(int row, int column) const {
    return address + static_cast<uint32_t>(row * kRowBytes + column * 2);
  }
};

// x = rows·columnsᵀ for 16·kTiles rows of a warp. The left operand stays in registers where there is room for all of
// it, and is loaded once.
template <class T, int D, int kTiles, int N8, int kLeft>
__device__ __forceinline__ void products(float (&x)[kTiles][N8][4], const MmaTile<D>& rows, const MmaTile<D>& columns,
                                         uint32_t (&left)[kLeft][kTiles][4], bool load, int warp_row) {
  constexpr bool kHeld = kLeft == D / 16;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int j = 0; j < N8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) x[m][j][e] = 0.0f;
    }
  }
#pragma unroll
  for (int d = 0; d < D; d += 16) {
    auto& a = left[kHeld ? d / 16 : 0];
    if (!kHeld || load) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) rows.left(a[m], warp_row + 16 * m, d);
    }
#pragma unroll
    for (int j = 0; j < 8 * N8; j += 16) {
      uint32_t b[4];
      columns.right_k_major(b, j, d);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma<T>(x[m][j / 8], a[m], b[0], b[1]);
        mma<T>(x[m][j / 8 + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// sums += x·columns
template <class T, int D, int kTiles, int N8>
__device__ __forceinline__ void add_products(float (&sums)[kTiles][D / 8][4], const float (&x)[kTiles][N8][4],
                                             const MmaTile<D>& columns) {
#pragma unroll
  for (int j = 0; j < 8 * N8; j += 16) {
    uint32_t a[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) as_left<T>(a[m], x[m][j / 8], x[m][j / 8 + 1]);
#pragma unroll
    for (int d = 0; d < D; d += 16) {
      uint32_t b[4];
      columns.right(b, j, d);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma<T>(sums[m][d / 8], a[m], b[0], b[1]);
        mma<T>(sums[m][d / 8 + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Writes the first `dim` of D columns of 16 rows from `row` on, held as sums side by side, times a factor for each
// half.
template <class T, int D>
__device__ __forceinline__ void write_rows(T* head, int64_t row_stride, int row, int rows, int dim,
                                           const float (&sums)[D / 8][4], float low_factor, float high_factor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + lane / 4 + 8 * half;
    if (r >= rows) continue;
    T* out = head + int64_t{r} * row_stride + lane % 4 * 2;
    const float factor = half == 0 ? low_factor : high_factor;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      if (j * 8 >= dim) break;
      store_raw<2>(out + j * 8, pack_two<T>(sums[j][2 * half] * factor, sums[j][2 * half + 1] * factor));
    }
  }
}

}  // namespace tigon::cuda
