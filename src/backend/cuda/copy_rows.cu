// One side of such a copy is usually padded, with rows at multiples of 16 bytes: that side moves in vectors, the other
// element by element. The lines that its threads share are in the L1 cache after the first of them.
#include "backend/cuda/copy_rows.hpp"

#include "backend/cuda/row_launch.cuh"

namespace tigon::cuda {

namespace {

template <class Unit>
struct Side {
  Unit* data;
  int64_t stride, columns;
  bool aligned;  // every row, to 16 bytes
};

template <class Unit>
__global__ void __launch_bounds__(256) copy_rows_kernel(Side<const Unit> from, Side<Unit> to, int64_t rows) {
  constexpr int W = 16 / sizeof(Unit);
  const int64_t step = int64_t{gridDim.y} * blockDim.x * W;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; i < rows; i += int64_t{gridDim.x} * blockDim.y) {
    const Unit* source = from.data + i * from.stride;
    Unit* target = to.data + i * to.stride;
    for (int64_t j = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W; j < to.columns; j += step) {
      union {
        uint4 vector;
        Unit units[W];
      };
      if (from.aligned && j + W <= from.columns) {
        vector = *reinterpret_cast<const uint4*>(source + j);
      } else {
#pragma unroll
        for (int k = 0; k < W; ++k) units[k] = j + k < from.columns ? source[j + k] : Unit{0};
      }
      if (to.aligned && j + W <= to.columns) {
        *reinterpret_cast<uint4*>(target + j) = vector;
      } else {
#pragma unroll
        for (int k = 0; k < W; ++k) {
          if (j + k < to.columns) target[j + k] = units[k];
        }
      }
    }
  }
}

template <class Unit>
void launch(const Context& ctx, const Tensor& from, const Tensor& to) {
  const RowGrid shape = row_grid(to.sizes[0], divide_up(to.sizes[1], 16 / static_cast<int64_t>(sizeof(Unit))));
  copy_rows_kernel<Unit><<<shape.grid, shape.block, 0, stream_of(ctx)>>>(
      {from.as<const Unit>(), from.strides[0], from.sizes[1], rows_aligned(from)},
      {to.as<Unit>(), to.strides[0], to.sizes[1], rows_aligned(to)}, to.sizes[0]);
  check_launch("copying rows");
}

}  // namespace

void copy_rows(const Context& ctx, const Tensor& from, const Tensor& to) {
  if (ctx.measuring() || to.elements() == 0) return;
  const DeviceGuard guard(ctx);
  if (size_of(to.dtype) == 2) {
    launch<uint16_t>(ctx, from, to);
  } else {
    launch<uint32_t>(ctx, from, to);
  }
}

}  // namespace tigon::cuda
