#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "backend/cuda/barrier.cuh"
#include "backend/cuda/launch.cuh"
#include "tigon/core/half.hpp"

// Tensor cores by a warpgroup, four warps (sm_90a): 64 rows × N columns at a time, asynchronously, with the right
// operand, and the left one if wanted, read straight from shared memory, where TMA put it.
//
// A sum is held as mma.cuh holds it, warp w the rows 16·w and on: sums side by side, packed to 16 bits, are the left
// operand of the next product.
namespace tigon::cuda {

// Whether there is code for them, and the device runs it: it is Hopper's alone, not that of chips after it.
inline bool has_warpgroup_products(Device device) {
#ifdef TIGON_SM90A
  return device_numbers(device).capability == 90;
#else
  return (void)device, false;
#endif
}

// Registers given from warpgroups that only ask for copies to those that compute.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
#endif
}

// Asks for what map_row_parts or map_panels describes, from `column` of a row on. By one thread.
__device__ __forceinline__ void copy_row_part(void* to, const CUtensorMap& map, int column, int row,
                                              uint64_t* barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];\n" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
#endif
}

// The same into shared memory of each thread block of a cluster that has a bit in `blocks`, at the same place, where it
// counts for the barrier at the same place.
__device__ __forceinline__ void copy_row_part_to(unsigned blocks, void* to, const CUtensorMap& map, int column, int row,
                                                 uint64_t* barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3}], [%4], %5;\n" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(static_cast<uint16_t>(blocks))
      : "memory");
#endif
}

// Before products that read or add to registers written by ordinary instructions.
__device__ __forceinline__ void begin_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#endif
}
// The products asked for since the last call are one group.
__device__ __forceinline__ void end_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#endif
}
// All groups but the last `kPending` are done.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
#endif
}

// Rows of D elements of 16 bits in shared memory as TMA writes them (128-byte swizzle): panels of 64 columns, rows of
// 128 bytes, their 16-byte pieces permuted by the row's number modulo 8.
template <int kRows, int D>
struct PanelTile {
  static_assert(kRows % 8 == 0 && D % 64 == 0);
  static constexpr uint32_t kPanelBytes = kRows * 128;
  static constexpr uint32_t kBytes = kPanelBytes * (D / 64);

  uint32_t address;  // in shared memory, a multiple of 1024

  // The part of it that begins there; rows in eights.
  __device__ __forceinline__ PanelTile from_row(int row) const { return {address + static_cast<uint32_t>(row) * 128}; }
  __device__ __forceinline__ PanelTile from_panel(int panel) const {
    return {address + static_cast<uint32_t>(panel) * kPanelBytes};
  }
  // The same tile, as if it lay anywhere: what describes it is computed where it is used instead of held in registers.
  __device__ __forceinline__ PanelTile forgotten() const {
    uint32_t somewhere = address;
    asm volatile("" : "+r"(somewhere));
    return {somewhere};
  }
  // K-major: rows of the tile are rows of the left or columns of the right operand; 16 columns from `column` on are
  // summed over.
  __device__ __forceinline__ uint64_t k_major(int column) const {
    return describe(static_cast<uint32_t>(column / 64) * kPanelBytes + static_cast<uint32_t>(column % 64 * 2), 16);
  }
  // MN-major: columns of the tile are columns of the right or rows of the left operand; 16 rows from `row` on are
  // summed over.
  __device__ __forceinline__ uint64_t mn_major(int row) const {
    return describe(static_cast<uint32_t>(row) * 128, kPanelBytes);
  }
  // Stores a left operand that a warp holds: 16×16 at (row, column).
  __device__ __forceinline__ void store(int row, int column, const uint32_t (&left)[4]) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const int lane = static_cast<int>(threadIdx.x) % 32, piece = column % 64 / 8 + lane / 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(
                     address + static_cast<uint32_t>(column / 64) * kPanelBytes +
                     static_cast<uint32_t>((row + lane % 16) * 128 + (piece ^ lane % 8) * 16)),
                 "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3])
                 : "memory");
#endif
  }
  // Asks for kRows rows from `row` of a head on; zeros beyond the tensor. By one thread.
  __device__ __forceinline__ void fetch(const CUtensorMap& map, int row, int head, int batch, uint64_t* barrier) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#pragma unroll
    for (int panel = 0; panel < D / 64; ++panel) {
      asm volatile(
          "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
          "%5}], [%6];\n" ::"r"(address + panel * kPanelBytes),
          "l"(&map), "r"(panel * 64), "r"(row), "r"(head), "r"(batch), "r"(shared_address(barrier))
          : "memory");
    }
#endif
  }

 private:
  // Groups of 8 rows are 1024 bytes apart; `panels` is what lies between panels, where an operand has several.
  // Addresses have 18 bits: in units of 16 bytes none carries into the field beside it, so that offsets are mere
  // additions.
  __device__ __forceinline__ uint64_t describe(uint32_t offset, uint32_t panels) const {
    constexpr uint32_t kPermuted128 = uint32_t{1} << 30, kGroups8 = 1024 / 16;
    const uint32_t low = address / 16 + (offset / 16 + (panels / 16 << 16));
    return uint64_t{kPermuted128 | kGroups8} << 32 | low;
  }
};

#define TIGON_FLOATS4(how, x, i) how(x[i][0]), how(x[i][1]), how(x[i][2]), how(x[i][3])
#define TIGON_FLOATS16(how, x, i) \
  TIGON_FLOATS4(how, x, i), TIGON_FLOATS4(how, x, i + 1), TIGON_FLOATS4(how, x, i + 2), TIGON_FLOATS4(how, x, i + 3)
#define TIGON_FLOATS32(how, x) TIGON_FLOATS16(how, x, 0), TIGON_FLOATS16(how, x, 4)
#define TIGON_FLOATS64(how, x) TIGON_FLOATS32(how, x), TIGON_FLOATS16(how, x, 8), TIGON_FLOATS16(how, x, 12)
#define TIGON_NAMES32                                                                                              \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31"
#define TIGON_NAMES64                                                                                             \
  TIGON_NAMES32                                                                                                   \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58," \
  "%59,%60,%61,%62,%63"

// Both operands in shared memory, whose descriptors are the first two after the sum.
#define TIGON_PRODUCT_IN_SHARED(type, n, names, floats, a, b, add, major)                               \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add                                                  \
               ", 0;\n"                                                                                 \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" names "}, " a ", " b \
               ", p, 1, 1, " major ", " major ";\n}\n"                                                  \
               : floats                                                                                 \
               : "l"(left), "l"(right), "n"(kAdd ? 1 : 0), "n"(kMnMajor ? 1 : 0))
// The left operand in registers, the right one MN-major; added to the sum.
#define TIGON_PRODUCT_FROM_REGISTERS(type, n, names, floats, a, b)                                        \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" names "}, {" a "}, " b \
               ", 1, 1, 1, 1;\n"                                                                          \
               : floats                                                                                   \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right))

// Both operands K-major, or both MN-major; the sum before counts with kAdd.
template <class T, bool kAdd, bool kMnMajor, int N8>
__device__ __forceinline__ void product_in_shared(float (&sum)[N8][4], uint64_t left, uint64_t right) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  static_assert(N8 == 8 || N8 == 16);
  // Where nothing is added the sum is an output alone: what it held before must not seem to matter.
#define TIGON_PRODUCT_SIZED(type, how)                                                                         \
  if constexpr (N8 == 8) {                                                                                     \
    TIGON_PRODUCT_IN_SHARED(type, "64", TIGON_NAMES32, TIGON_FLOATS32(how, sum), "%32", "%33", "%34", "%35");  \
  } else {                                                                                                     \
    TIGON_PRODUCT_IN_SHARED(type, "128", TIGON_NAMES64, TIGON_FLOATS64(how, sum), "%64", "%65", "%66", "%67"); \
  }
#define TIGON_PRODUCT(type)         \
  if constexpr (kAdd) {             \
    TIGON_PRODUCT_SIZED(type, "+f") \
  } else {                          \
    TIGON_PRODUCT_SIZED(type, "=f") \
  }
  if constexpr (std::is_same_v<T, bf16>) {
    TIGON_PRODUCT("bf16")
  } else {
    TIGON_PRODUCT("f16")
  }
#undef TIGON_PRODUCT
#undef TIGON_PRODUCT_SIZED
#endif
}

template <class T, int N8>
__device__ __forceinline__ void add_product(float (&sum)[N8][4], const uint32_t (&left)[4], uint64_t right) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  static_assert(N8 == 8 || N8 == 16);
#define TIGON_PRODUCT(type)                                                                                        \
  if constexpr (N8 == 8) {                                                                                         \
    TIGON_PRODUCT_FROM_REGISTERS(type, "64", TIGON_NAMES32, TIGON_FLOATS32("+f", sum), "%32,%33,%34,%35", "%36");  \
  } else {                                                                                                         \
    TIGON_PRODUCT_FROM_REGISTERS(type, "128", TIGON_NAMES64, TIGON_FLOATS64("+f", sum), "%64,%65,%66,%67", "%68"); \
  }
  if constexpr (std::is_same_v<T, bf16>) {
    TIGON_PRODUCT("bf16")
  } else {
    TIGON_PRODUCT("f16")
  }
#undef TIGON_PRODUCT
#endif
}

#undef TIGON_PRODUCT_FROM_REGISTERS
#undef TIGON_PRODUCT_IN_SHARED
#undef TIGON_NAMES64
#undef TIGON_NAMES32
#undef TIGON_FLOATS64
#undef TIGON_FLOATS32
#undef TIGON_FLOATS16
#undef TIGON_FLOATS4

// sum = rows·columnsᵀ for the first 64 rows, a group of products of its own.
template <class T, int kRows, int kColumns, int D>
__device__ __forceinline__ void multiply(float (&sum)[kColumns / 8][4], const PanelTile<kRows, D>& rows,
                                         const PanelTile<kColumns, D>& columns) {
  begin_products();
  product_in_shared<T, false, false>(sum, rows.k_major(0), columns.k_major(0));
#pragma unroll
  for (int d = 16; d < D; d += 16) product_in_shared<T, true, false>(sum, rows.k_major(d), columns.k_major(d));
  end_products();
}

// sum = leftᵀ·right for the first panel of each, 64 rows and 64 columns: both tiles MN-major, their rows are summed
// over. A group of products of its own.
template <class T, int kRows, int kLeft, int kRight>
__device__ __forceinline__ void multiply_mn_major(float (&sum)[8][4], const PanelTile<kRows, kLeft>& left,
                                                  const PanelTile<kRows, kRight>& right) {
  begin_products();
  product_in_shared<T, false, true>(sum, left.mn_major(0), right.mn_major(0));
#pragma unroll
  for (int row = 16; row < kRows; row += 16) {
    product_in_shared<T, true, true>(sum, left.mn_major(row), right.mn_major(row));
  }
  end_products();
}

// sum += left·columns, the left operand packed in registers, a group of products of its own.
template <class T, int kColumns, int D>
__device__ __forceinline__ void add_multiple(float (&sum)[D / 8][4], const uint32_t (&left)[kColumns / 16][4],
                                             const PanelTile<kColumns, D>& columns) {
  begin_products();
#pragma unroll
  for (int j = 0; j < kColumns / 16; ++j) add_product<T>(sum, left[j], columns.mn_major(16 * j));
  end_products();
}

}  // namespace tigon::cuda
