// Sums over rows: slabs of rows are summed by blocks of their own, then the slabs in order.
#include "backend/cuda/column_sums.hpp"

#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

namespace tigon::cuda {

namespace {

constexpr int kColumns = 32;  // of a block: one warp across
constexpr int kWarps = 8;     // share the rows of a slab
constexpr int64_t kSlabRows = 512;
constexpr int64_t kMaxSlabs = 64;

template <class T>
__global__ void __launch_bounds__(kColumns* kWarps)
    slab_sums_kernel(Rows<const T> x, int64_t rows, int64_t slab, int64_t columns, float* sums) {
  __shared__ float parts[kWarps][kColumns];
  const int64_t j = int64_t{blockIdx.x} * kColumns + threadIdx.x;
  const int64_t end = min(rows, (blockIdx.y + 1) * slab);
  float sum = 0.0f;
  if (j < columns) {
#pragma unroll 4
    for (int64_t i = blockIdx.y * slab + threadIdx.y; i < end; i += kWarps) sum += load_one(x.at(i) + j);
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || j >= columns) return;
  for (int w = 1; w < kWarps; ++w) sum += parts[w][threadIdx.x];
  sums[blockIdx.y * columns + j] = sum;
}

template <class Out>
__global__ void __launch_bounds__(256)
    add_slabs_kernel(const float* sums, int64_t slabs, int64_t columns, Out* out, bool accumulate) {
  const int64_t j = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (j >= columns) return;
  float sum = 0.0f;
  for (int64_t s = 0; s < slabs; ++s) sum += sums[s * columns + j];
  store_one(out + j, accumulate ? sum + load_one(out + j) : sum);
}

}  // namespace

void column_sums(const Context& ctx, const Tensor& x, const Tensor& out, bool accumulate) {
  const int64_t rows = x.sizes[0], columns = x.sizes[1];
  const int64_t slabs = std::clamp<int64_t>(divide_up(rows, kSlabRows), 1, kMaxSlabs);
  const Buffer sums = ctx.scratch("column_sums", slabs * columns * 4);
  if (ctx.measuring() || columns == 0) return;
  const DeviceGuard guard(ctx);
  dispatch("column sums", x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const dim3 grid(static_cast<unsigned>(divide_up(columns, kColumns)), static_cast<unsigned>(slabs));
    slab_sums_kernel<T><<<grid, dim3(kColumns, kWarps), 0, stream_of(ctx)>>>(
        rows_of<const T>(x), rows, divide_up(rows, slabs), columns, sums.as<float>());
  });
  check_launch("column sums");
  dispatch("column sums", out.dtype, [&](auto* type) {
    using Out = std::remove_pointer_t<decltype(type)>;
    add_slabs_kernel<Out><<<static_cast<unsigned>(divide_up(columns, 256)), 256, 0, stream_of(ctx)>>>(
        sums.as<float>(), slabs, columns, out.as<Out>(), accumulate);
  });
  check_launch("column sums");
}

}  // namespace tigon::cuda
