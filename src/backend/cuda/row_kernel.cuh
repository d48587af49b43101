#pragma once

#include <map>
#include <mutex>
#include <tuple>

#include "backend/cuda/row_stream.cuh"
#include "backend/cuda/softmax_row.cuh"

// The two kernels that walk over rows for an op, and the choice between them. An op is a small struct:
//
//   bool wanted(row)                            whether the row is to be read at all
//   void skip(team threads…, row)               what to do when not
//   void run(team, row, held, Shared&)          the work on a held row; every thread of the team comes here
//   struct Shared                               its shared memory
//   kLight                                      few registers beside the held row: two blocks fit a multiprocessor
namespace tigon::cuda {

// Blocks per multiprocessor that leave a thread registers for NV vectors.
constexpr int row_blocks_for(int held, bool light) { return light && held <= 5 ? 2 : 1; }

// A block per row.
template <class T, int W, int NV, class Op>
__global__ void __launch_bounds__(kRowThreads, row_blocks_for(NV, Op::kLight))
    row_kernel(const Op op, Rows<const T> x, int64_t rows, int64_t columns) {
  __shared__ typename Op::Shared shared;
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    if (!op.wanted(i)) {
      op.template skip<W>(i, 0, columns);
      continue;
    }
    const HeldRow<T, W, NV> held(x.at(i), 0, columns);
    op.run(Team(1, 0), i, held, shared);
    __syncthreads();  // before `shared` is used again
  }
}

// A cluster per row, on a grid that stays: while one row is worked on, the next two are on their way. Needs sm_90.
template <class T, int NV, class Op>
__global__ void __launch_bounds__(kRowThreads, row_blocks_for(NV, Op::kLight))
    row_team_kernel(const Op op, Rows<const T> x, int64_t rows, int64_t columns, unsigned blocks, int64_t segment) {
  constexpr int W = kLanes<T>;
  extern __shared__ uint4 slots[];
  __shared__ RowStream::Shared stream_shared;
  __shared__ typename Op::Shared shared[2];  // used in turn: a block is at most one wanted row ahead of the others
  const Team team(blocks, blockIdx.x % blocks);
  const int64_t begin = min(columns, blockIdx.x % blocks * segment), end = min(columns, begin + segment);
  const int64_t step = gridDim.x / blocks;
  const auto bytes = static_cast<uint32_t>((end - begin + W - 1) / W * 16);
  RowStream stream(stream_shared, slots, static_cast<uint32_t>(segment * static_cast<int64_t>(sizeof(T))));
  const auto ask = [&](int64_t i, int slot) {
    if (threadIdx.x == 0 && bytes > 0 && i < rows && op.wanted(i)) stream.ask(slot, x.at(i) + begin, bytes);
  };
  int64_t i = blockIdx.x / blocks;
  ask(i, 0);
  ask(i + step, 1);
  __syncthreads();  // the barriers stand
  int buffer = 0;
  for (int turn = 0; i < rows; i += step, turn ^= 1) {
    if (!op.wanted(i)) {
      op.template skip<W>(i, begin, end);
      ask(i + 2 * step, turn);
      continue;
    }
    if (bytes > 0) stream.wait(turn);
    const HeldRow<T, W, NV> held(reinterpret_cast<const T*>(stream.slot(turn)), begin, end);
    __syncthreads();  // everyone has read the slot
    ask(i + 2 * step, turn);
    op.run(team, i, held, shared[buffer]);
    buffer ^= 1;
  }
}

// How a kernel with clusters runs best on a device: asked once.
template <class Kernel>
unsigned resident_clusters(Kernel kernel, Device device, const cudaLaunchConfig_t& config) {
  static std::mutex mutex;
  static std::map<std::tuple<const void*, int, unsigned, size_t>, int> known;
  const std::lock_guard lock(mutex);
  int& clusters = known[{reinterpret_cast<const void*>(kernel), device.index, config.attrs[0].val.clusterDim.x,
                         config.dynamicSmemBytes}];
  if (clusters == 0) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(config.dynamicSmemBytes)),
          "row kernel");
    check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "row kernel");
    clusters = std::max(clusters, 1);
  }
  return static_cast<unsigned>(clusters);
}

template <class T, int NV, class Op>
void launch_teams(const Context& ctx, const char* where, const Op& op, const Tensor& x, unsigned blocks) {
  const int64_t rows = x.sizes[0], columns = x.sizes[1];
  const int64_t segment = round_up(divide_up(columns, blocks), 128 / static_cast<int64_t>(sizeof(T)));
  const auto kernel = row_team_kernel<T, NV, Op>;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {blocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kRowThreads);
  config.dynamicSmemBytes = static_cast<size_t>(kStreamSlots * segment) * sizeof(T);
  config.stream = stream_of(ctx);
  config.attrs = &cluster;
  config.numAttrs = 1;
  const unsigned clusters = resident_clusters(kernel, ctx.device, config);
  config.gridDim = dim3(blocks * static_cast<unsigned>(std::min<int64_t>(rows, clusters)));
  check(cudaLaunchKernelEx(&config, kernel, op, rows_of<const T>(x), rows, columns, blocks, segment), where);
}

// Runs `op` on each row of x, which may be read 16 bytes at a time when `aligned`: up to the last column, or past it
// when `padded`.
template <class T, class Op>
void run_rows(const Context& ctx, const char* where, const Op& op, const Tensor& x, bool aligned, bool padded) {
  constexpr int W = kLanes<T>;
  const int64_t rows = x.sizes[0], columns = x.sizes[1];
  const auto grid = static_cast<unsigned>(std::min(rows, kMaxGridX));
  const auto threads_for = [](int64_t vectors) {
    return static_cast<unsigned>(power_of_two_for(divide_up(vectors, 4), 32, kRowThreads));
  };
  if (!aligned || (columns % W != 0 && !padded)) {
    row_kernel<T, 1, 4, Op><<<grid, threads_for(columns), 0, stream_of(ctx)>>>(op, rows_of<const T>(x), rows, columns);
    return check_launch(where);
  }
  const int64_t vectors = divide_up(columns, W);
  if (vectors <= 4 * kRowThreads) {
    row_kernel<T, W, 4, Op><<<grid, threads_for(vectors), 0, stream_of(ctx)>>>(op, rows_of<const T>(x), rows, columns);
    return check_launch(where);
  }
  if (attribute(ctx.device, cudaDevAttrComputeCapabilityMajor) >= 9) {
    unsigned blocks = 1;
    while (blocks < kMaxTeam && vectors > int64_t{5} * kRowThreads * blocks) blocks *= 2;
    const int64_t each = divide_up(vectors, int64_t{kRowThreads} * blocks);
    if (each <= 4) return launch_teams<T, 4>(ctx, where, op, x, blocks);
    if (each <= 5) return launch_teams<T, 5>(ctx, where, op, x, blocks);
    if (each <= 10) return launch_teams<T, 10>(ctx, where, op, x, blocks);
  }
  row_kernel<T, W, 12, Op><<<grid, kRowThreads, 0, stream_of(ctx)>>>(op, rows_of<const T>(x), rows, columns);
  check_launch(where);
}

}  // namespace tigon::cuda
