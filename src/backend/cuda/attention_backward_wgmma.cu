// attention backward on Hopper's tensor cores, in the two passes of attention_backward_mma.cu and with its names: rows
// stay, columns are walked over. A grid that stays: in each thread block one thread asks the copy engine for rows and
// columns ahead of time, and two warpgroups own 64 rows each. While one makes exponentials, the other's products run.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/tensor_map.hpp"
#include "backend/cuda/wgmma.cuh"

namespace tigon::cuda {

namespace {

constexpr int kGroupRows = 64, kGroups = 2, kRows = kGroupRows * kGroups;
constexpr int kThreads = 128 * (1 + kGroups);
[[maybe_unused]] constexpr int kFetcherRegisters = 24, kGroupRegisters = 240;  // of 168 that a thread has at first
static_assert(kAttentionPitch % kRows == 0);

// Keys as rows: row = k, row_other = v, column = q, column_other = dout, out = dk, other = dv. Queries as rows: row =
// q, row_other = dout, column = k, column_other = v, out = dq.
template <class T>
struct BackwardJob {
  CUtensorMap row{}, row_other{}, column{}, column_other{};
  Heads<T> out{}, other{};
  const float* lse2 = nullptr;   // [batch, heads, pitch]
  const float* delta = nullptr;  // [batch, heads, pitch]
  int64_t pitch = 0;
  // The same where columns are queries. Copies without a map would do; compute-sanitizer's racecheck takes those for
  // writes of the thread that asks for them.
  CUtensorMap column_lse2{}, column_delta{};
};

template <int D, bool kRowsAreKeys>
struct BackwardShape {
  static constexpr int kColumns = kRowsAreKeys && D > 64 ? 64 : 128;  // per step: what registers allow
  using RowTile = PanelTile<kRows, D>;
  using ColumnTile = PanelTile<kColumns, D>;
  // lse2 and delta of columns that are queries; a multiple of what tiles are aligned to.
  static constexpr int kStatistics = kRowsAreKeys ? 1024 : 0;
  static constexpr int kStageBytes = 2 * ColumnTile::kBytes + kStatistics;
  static constexpr int kRowBuffers = D > 64 ? 1 : 2;
  static constexpr int kRowBytes = kRowBuffers * 2 * RowTile::kBytes;
  static constexpr int kStages = D > 64 && !kRowsAreKeys ? 2 : 3;
  static constexpr int kBytes = 1024 + kRowBytes + kStages * kStageBytes;  // 1024 to align them
};

// How the copies' thread and the warpgroups agree on what is filled and what may be filled again.
template <int kBuffers>
struct Buffers {
  uint64_t full[kBuffers], empty[kBuffers];

  __device__ __forceinline__ void init(int readers) {
    for (int i = 0; i < kBuffers; ++i) {
      init_barrier(full + i);
      init_barrier(empty + i, readers);
    }
  }
  // `use` counts what went through the buffers so far.
  __device__ __forceinline__ uint64_t* to_fill(int use) {
    wait_barrier(empty + use % kBuffers, (use / kBuffers & 1) ^ 1);
    return full + use % kBuffers;
  }
  __device__ __forceinline__ void wait_full(int use) { wait_barrier(full + use % kBuffers, use / kBuffers & 1); }
  // By every warp that reads.
  __device__ __forceinline__ void release(int use) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty + use % kBuffers);
  }
};

// The rows and columns of one piece of work.
template <int kColumns, bool kRowsAreKeys>
struct Walk {
  int first_row, begin, steps_per_head, steps;

  __device__ __forceinline__ Walk(const AttentionWork& work, const AttentionSizes& n) {
    const auto seq = static_cast<int>(n.seq);
    first_row = static_cast<int>(work.row_block * kRows);
    begin = n.causal && kRowsAreKeys ? first_row : 0;
    const int end = n.causal && !kRowsAreKeys ? min(seq, first_row + kRows) : seq;
    steps_per_head = (end - begin + kColumns - 1) / kColumns;
    steps = steps_per_head * (kRowsAreKeys ? static_cast<int>(n.group) : 1);
  }
  __device__ __forceinline__ int column(int step) const { return begin + step % steps_per_head * kColumns; }
};

// Calls f(work) for a thread block's share. Work is sorted, the longest first: going back and forth over the thread
// blocks gives each about as much.
template <class F>
__device__ __forceinline__ void for_share(const AttentionGrid& grid, int64_t pieces, const F& f) {
  const int64_t blocks = gridDim.x;
  for (int64_t round = 0; round * blocks < pieces; ++round) {
    const int64_t piece = round * blocks + (round % 2 == 0 ? blockIdx.x : blocks - 1 - blockIdx.x);
    if (piece < pieces) f(grid.work(piece));
  }
}

template <class T, int D, bool kRowsAreKeys>
__global__ void __launch_bounds__(kThreads, 1)
    attention_backward_wgmma_kernel(const __grid_constant__ BackwardJob<T> job, AttentionSizes n, AttentionGrid grid,
                                    int64_t pieces) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shape = BackwardShape<D, kRowsAreKeys>;
  using RowTile = typename Shape::RowTile;
  using ColumnTile = typename Shape::ColumnTile;
  constexpr int N = Shape::kColumns;
  // Whether p's product may run while ds is made, which needs registers for both.
  constexpr bool kOtherFirst = kRowsAreKeys && N == 64;
  extern __shared__ unsigned char unaligned[];
  unsigned char* memory = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const uint32_t shared = shared_address(memory);
  __shared__ Buffers<Shape::kRowBuffers> row_buffers;
  __shared__ Buffers<Shape::kStages> stages;
  if (threadIdx.x == 0) {
    row_buffers.init(4 * kGroups);
    stages.init(4 * kGroups);
    fence_barriers();
  }
  __syncthreads();
  const auto rows_at = [&](int use, int which) {
    return RowTile{shared + static_cast<uint32_t>(use % Shape::kRowBuffers * 2 + which) * RowTile::kBytes};
  };
  const auto stage_at = [&](int use) { return Shape::kRowBytes + use % Shape::kStages * Shape::kStageBytes; };
  const auto columns_at = [&](int use, int which) {
    return ColumnTile{shared + static_cast<uint32_t>(stage_at(use) + which * static_cast<int>(ColumnTile::kBytes))};
  };
  const auto statistics_at = [&](int use) {
    return reinterpret_cast<float*>(memory + stage_at(use) + 2 * ColumnTile::kBytes);
  };

  // From one lane: descriptors of tiles are then computed once for a warp, beside what its threads do.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0) - 1;
  int row_use = 0, use = 0;
  if (group < 0) {
    give_registers<kFetcherRegisters>();
    if (threadIdx.x != 0) return;
    for_share(grid, pieces, [&](const AttentionWork& work) {
      const Walk<N, kRowsAreKeys> walk(work, n);
      const auto batch = static_cast<int>(work.batch), head = static_cast<int>(work.head);
      uint64_t* rows_full = row_buffers.to_fill(row_use);
      expect_bytes(rows_full, 2 * RowTile::kBytes);
      rows_at(row_use, 0).fetch(job.row, walk.first_row, head, batch, rows_full);
      rows_at(row_use, 1).fetch(job.row_other, walk.first_row, head, batch, rows_full);
      ++row_use;
      for (int step = 0; step < walk.steps; ++step, ++use) {
        const int column = walk.column(step);
        const int64_t q_head = work.head * n.group + step / walk.steps_per_head;  // where columns are queries
        const int column_head = static_cast<int>(kRowsAreKeys ? q_head : work.head / n.group);
        uint64_t* full = stages.to_fill(use);
        expect_bytes(full, 2 * ColumnTile::kBytes + (kRowsAreKeys ? 2 * N * sizeof(float) : 0));
        columns_at(use, 0).fetch(job.column, column, column_head, batch, full);
        columns_at(use, 1).fetch(job.column_other, column, column_head, batch, full);
        if constexpr (kRowsAreKeys) {
          const auto row = static_cast<int>(work.batch * n.heads + q_head);
          copy_row_part(statistics_at(use), job.column_lse2, column, row, full);
          copy_row_part(statistics_at(use) + N, job.column_delta, column, row, full);
        }
      }
    });
    return;
  }

  take_registers<kGroupRegisters>();
  const int lane = static_cast<int>(threadIdx.x) % 32, group_row = group * kGroupRows;
  const int warp_row = group_row + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  const auto dim = static_cast<int>(n.dim), seq = static_cast<int>(n.seq);
  const float scale_log2 = n.scale * kLog2E;

  for_share(grid, pieces, [&](const AttentionWork& work) {
    const Walk<N, kRowsAreKeys> walk(work, n);
    const int first = walk.first_row + group_row, row = walk.first_row + warp_row;
    const RowTile rows = rows_at(row_use, 0), other_rows = rows_at(row_use, 1);
    float row_lse2[2], row_delta[2];  // where rows are queries
    if constexpr (!kRowsAreKeys) {
      const int64_t at = (work.batch * n.heads + work.head) * job.pitch + row + lane / 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_lse2[half] = job.lse2[at + 8 * half];
        row_delta[half] = job.delta[at + 8 * half];
      }
    }
    float out[D / 8][4] = {};
    float other[D / 8][4] = {};  // where rows are keys
    float score[N / 8][4], dp[N / 8][4];
    uint32_t p_left[kRowsAreKeys ? N / 16 : 1][4], ds_left[N / 16][4];

    // The scores of a step, not waited for.
    const auto begin_step = [&](int at) {
      stages.wait_full(at);
      multiply<T>(score, rows, group_row, columns_at(at, 0));
    };
    // The rest of a step, but for the end of its last products, and the beginning of the next: tensor cores always have
    // something to do.
    const auto go_on = [&](int step, auto has_next) {
      const int column = walk.column(step);
      const ColumnTile columns = columns_at(use, 0), other_columns = columns_at(use, 1);
      multiply<T>(dp, other_rows, group_row, other_columns);

      float p[N / 8][4], ds[N / 8][4];
      const float* lse2 = statistics_at(use) + lane % 4 * 2;
      const float* delta = lse2 + N;
#pragma unroll
      for (int j = 0; j < N / 8; ++j) {
        const float2 shift = kRowsAreKeys ? *reinterpret_cast<const float2*>(lse2 + j * 8) : float2{};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float by = kRowsAreKeys ? (e % 2 == 0 ? shift.x : shift.y) : row_lse2[e / 2];
          p[j][e] = exp2_fast(fmaf(score[j][e], scale_log2, -by));
        }
      }
      // In a branch of its own, since most steps have nothing to mask. Queries beyond the last have an infinite lse2.
      if ((!kRowsAreKeys && column + N > seq) ||
          (n.causal && (kRowsAreKeys ? column < first + kGroupRows - 1 : column + N - 1 > first))) {
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int r = row + lane / 4 + e / 2 * 8, c = column + j * 8 + lane % 4 * 2 + e % 2;
            if ((!kRowsAreKeys && c >= seq) || (n.causal && (kRowsAreKeys ? c < r : c > r))) p[j][e] = 0.0f;
          }
        }
      }
      if constexpr (kOtherFirst) {
#pragma unroll
        for (int j = 0; j < N / 16; ++j) as_left<T>(p_left[j], p[2 * j], p[2 * j + 1]);
        add_multiple<T>(other, p_left, other_columns);
      }
      wait_for_products<kOtherFirst ? 1 : 0>();
#pragma unroll
      for (int j = 0; j < N / 8; ++j) {
        const float2 shift = kRowsAreKeys ? *reinterpret_cast<const float2*>(delta + j * 8) : float2{};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float by = kRowsAreKeys ? (e % 2 == 0 ? shift.x : shift.y) : row_delta[e / 2];
          ds[j][e] = p[j][e] * (dp[j][e] - by);
        }
        if (j % 2 == 0) continue;
        if constexpr (kRowsAreKeys && !kOtherFirst) as_left<T>(p_left[j / 2], p[j - 1], p[j]);
        as_left<T>(ds_left[j / 2], ds[j - 1], ds[j]);
      }
      if constexpr (kRowsAreKeys && !kOtherFirst) add_multiple<T>(other, p_left, other_columns);
      add_multiple<T>(out, ds_left, columns);
      if constexpr (decltype(has_next)::value) begin_step(use + 1);
      wait_for_products<0>();
      stages.release(use);
      ++use;
    };

    row_buffers.wait_full(row_use);
    begin_step(use);
    wait_for_products<0>();
    for (int step = 0; step < walk.steps - 1; ++step) go_on(step, std::true_type());
    go_on(walk.steps - 1, std::false_type());
    row_buffers.release(row_use);
    ++row_use;

    write_rows<T, D>(job.out.head(work.batch, work.head), job.out.row_stride, row, seq, dim, out, n.scale, n.scale);
    if constexpr (kRowsAreKeys) {
      write_rows<T, D>(job.other.head(work.batch, work.head), job.other.row_stride, row, seq, dim, other, 1.0f, 1.0f);
    }
  });
#endif
}

template <class T, int D, bool kRowsAreKeys>
void launch_pass(const Context& ctx, const AttentionSizes& n, const BackwardJob<T>& job) {
  using Shape = BackwardShape<D, kRowsAreKeys>;
  const AttentionGrid grid{.batches = n.batch,
                           .heads = kRowsAreKeys ? n.kv_heads : n.heads,
                           .row_blocks = divide_up(n.seq, kRows),
                           .panels = 1,
                           .last_first = !kRowsAreKeys};
  const auto kernel = attention_backward_wgmma_kernel<T, D, kRowsAreKeys>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes), "attention_backward");
  const int64_t pieces = grid.blocks();
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(pieces, device_numbers(ctx.device).multiprocessors));
  kernel<<<blocks, kThreads, Shape::kBytes, stream_of(ctx)>>>(job, n, grid, pieces);
  check_launch("attention_backward");
}

// False where the copy engine cannot see the tensors as they lie.
template <class T, int D>
bool launch(const Context& ctx, const ops::AttentionBackward& args, const AttentionStatistics& statistics) {
  const AttentionSizes n = attention_sizes(args);
  BackwardJob<T> keys{.out = heads_of<T>(args.dk),
                      .other = heads_of<T>(args.dv),
                      .lse2 = statistics.lse2,
                      .delta = statistics.delta,
                      .pitch = attention_pitch(n.seq)};
  BackwardJob<T> queries = keys;
  queries.out = heads_of<T>(args.dq);
  constexpr int kKeyStep = BackwardShape<D, true>::kColumns, kQueryStep = BackwardShape<D, false>::kColumns;
  const auto map_statistics = [&](const float* data, CUtensorMap& map) {
    return map_row_parts(data, n.batch * n.heads, keys.pitch, kKeyStep, map);
  };
  if (!map_statistics(statistics.lse2, keys.column_lse2) || !map_statistics(statistics.delta, keys.column_delta) ||
      !map_heads(args.k, kRows, keys.row) || !map_heads(args.v, kRows, keys.row_other) ||
      !map_heads(args.q, kKeyStep, keys.column) || !map_heads(args.dout, kKeyStep, keys.column_other) ||
      !map_heads(args.q, kRows, queries.row) || !map_heads(args.dout, kRows, queries.row_other) ||
      !map_heads(args.k, kQueryStep, queries.column) || !map_heads(args.v, kQueryStep, queries.column_other)) {
    return false;
  }
  launch_pass<T, D, true>(ctx, n, keys);
  launch_pass<T, D, false>(ctx, n, queries);
  return true;
}

}  // namespace

bool attention_backward_wgmma_fits(const Context& ctx, const ops::AttentionBackward& args) {
#ifdef TIGON_SM90A
  constexpr bool kBuilt = true;
#else
  constexpr bool kBuilt = false;
#endif
  return kBuilt && device_numbers(ctx.device).capability == 90 && mma_fits(args) && args.q.elements() > 0 &&
         rows_aligned(args.q, args.k, args.v, args.dout, args.dq, args.dk, args.dv);
}

bool attention_backward_wgmma(const Context& ctx, const ops::AttentionBackward& args,
                              const AttentionStatistics& statistics) {
  if (!attention_backward_wgmma_fits(ctx, args)) return false;
  const auto with_type = [&]<class T>(T*) {
    return args.q.sizes[3] <= 64 ? launch<T, 64>(ctx, args, statistics) : launch<T, 128>(ctx, args, statistics);
  };
  return args.q.dtype == DType::bf16 ? with_type(static_cast<bf16*>(nullptr)) : with_type(static_cast<f16*>(nullptr));
}

}  // namespace tigon::cuda
