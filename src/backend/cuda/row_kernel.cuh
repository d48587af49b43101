#pragma once

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/row_out.cuh"

// The two kernels that walk over rows for an op, and the choice between them. An op is a small struct:
//
// - Info, info(row), wanted(info): what it needs to know of a row, and whether the row is to be read at all.
// - skip<W, kShifted>(row, share): what to do with these columns when it is not.
// - peek(info, held): a value of the row that one thread of each block picks out.
// - run(team, row, info, peeked, held, shared, out): the work. Every thread of the team comes here; `out` takes rows.
// - Shared: shared memory for it.
// - kTeams: whether rows are ever long enough for a team.
// - kLight: few registers beside the held row, so that one block more fits a multiprocessor.
namespace tigon::cuda {

inline constexpr int kMaxColumns = 1 << 30;

// Blocks per multiprocessor that leave a thread registers for NV vectors.
constexpr int row_blocks_for(int held, bool light) { return light && held <= 5 ? 2 : 1; }

// The same for a team's blocks, which hold all of their row: several, so that one computes while another waits.
constexpr int team_blocks_for(int held, bool light) { return (held <= 10 ? 2 : 1) + (light ? 1 : 0); }

// A block per row. kShifted: rows may begin at any element, and what the op reads and writes beside x begins at the
// same place of 16 bytes.
template <class T, int W, int NV, class Op, bool kShifted = false>
__global__ void __launch_bounds__(kRowThreads, row_blocks_for(NV, Op::kLight))
    row_kernel(const Op op, Rows<const T> x, int64_t rows, int columns) {
  __shared__ typename Op::Shared shared;
  __shared__ Team::Shared team_shared;
  Team team(1, 0, team_shared);
  for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
    const auto info = op.info(i);
    const RowShare share{0, columns, kShifted ? lead_of(x.at(i)) : 0};
    if (!op.wanted(info)) {
      op.template skip<W, kShifted>(i, share);
      continue;
    }
    const HeldRow<T, W, NV, false, kShifted> held(x.at(i), share);
    const float peeked = threadIdx.x == 0 ? op.peek(info, held) : 0.0f;
    StoredRows out;
    op.run(team, i, info, peeked, held, shared, out);
    __syncthreads();  // before `shared` is used again
  }
}

// A block for rows of so many vectors.
inline unsigned row_threads(int64_t vectors) {
  return static_cast<unsigned>(power_of_two_for(divide_up(vectors, 4), 32, kRowThreads));
}

// Vectors of each thread that leave together: what is left of shared memory beside the landing of a row allows so many.
template <int kHeld>
inline constexpr int kPieceOf = 4;
template <>
inline constexpr int kPieceOf<10> = 3;
template <>
inline constexpr int kPieceOf<20> = 2;

// A cluster per row, on a persistent grid: one thread prefetches a block's segment of the next row by a bulk copy (TMA)
// as soon as this row is in registers. The blocks exchange maximum and sum by remote stores that count on an mbarrier:
// a barrier of the whole cluster would first wait for the last row's stores to reach memory. Needs sm_90.
template <class T, int NV, class Op, bool kShifted = false>
__global__ void __launch_bounds__(kTeamThreads, team_blocks_for(NV, Op::kLight))
    row_team_kernel(const Op op, Rows<const T> x, int rows, int columns, unsigned blocks, int segment) {
#if __CUDA_ARCH__ >= 900  // older chips need not carry it
  constexpr int W = kLanes<T>;
  using Info = typename Op::Info;
  extern __shared__ uint4 landing[];  // one segment, then what leaves
  __shared__ uint64_t arrived;
  __shared__ Info next;
  __shared__ typename Op::Shared shared[2];  // used in turn: a block is at most one wanted row ahead of the others
  __shared__ Team::Shared team_shared;
  let_next_begin();  // takes no block's room: it is when all blocks have come here that the next kernel may begin
  if (threadIdx.x == 0) {
    init_barrier(&arrived);
    fence_barriers();
  }
  const unsigned rank = blockIdx.x % blocks;
  const auto step = static_cast<int>(gridDim.x / blocks);
  const int begin = min(columns, static_cast<int>(rank) * segment), end = min(columns, begin + segment);
  RowShare share{begin, end, 0};  // of every row, unless they are shifted
  const auto bytes = static_cast<uint32_t>((end - begin + W - 1) / W * 16);
  // By one thread: a row that nobody wants arrives without bytes.
  const auto ask = [&](int i, const Info& info) {
    if (i >= rows) return;
    next = info;
    if constexpr (kShifted) {
      const RowShare its = row_share(columns, lead_of(x.at(i)), segment, static_cast<int>(rank));
      const auto copied = Bounds<T>(x, rows, columns).copied(x.at(i) + its.first(), its.vectors(W));
      const uint32_t wanted = op.wanted(info) ? copied.bytes() : 0;
      expect_bytes(&arrived, wanted);
      if (wanted > 0) copy_bulk(landing + copied.begin, copied.from + copied.begin * W, wanted, &arrived);
    } else {
      const uint32_t wanted = op.wanted(info) ? bytes : 0;
      expect_bytes(&arrived, wanted);
      if (wanted > 0) copy_bulk(landing, x.at(i) + share.begin, wanted, &arrived);
    }
  };
  const auto info_of = [&](int i) { return i < rows ? op.info(i) : Info{}; };
  auto i = static_cast<int>(blockIdx.x / blocks);
  Info later{};  // of the row after the one on its way: known before it is needed
  if (threadIdx.x == 0) {
    ask(i, info_of(i));
    later = info_of(i + step);
  }
  __syncthreads();  // the barrier stands
  Team team(blocks, rank, team_shared);
  SentRows<kPieceOf<NV>> out(landing + segment / W);
  uint32_t phase = 0, buffer = 0;
  for (; i < rows; i += step, phase ^= 1) {
    wait_barrier(&arrived, phase);
    const Info info = next;
    const bool wanted = op.wanted(info);
    auto* landed = reinterpret_cast<T*>(landing);
    if constexpr (kShifted) {
      share = row_share(columns, lead_of(x.at(i)), segment, static_cast<int>(rank));
      const Bounds<T> bounds(x, rows, columns);
      const int last = share.vectors(W) - 1;
      for (const int v : {0, last}) {
        const int j = share.first() + v * W;
        const bool mine = wanted && v <= last && static_cast<int>(threadIdx.x) == v % kTeamThreads;
        if (!mine || is_whole<W>(j, share.begin, share.end)) continue;
        bounds.mend(landed + v * W, x.at(i), j, share.begin, share.end, lowest());
        written_for_copies();
      }
      // What was not copied has been put there by another thread than may peek at it.
      if (!bounds.hold(x.at(i) + share.first() + last * W)) __syncthreads();
    } else if (share.end % W != 0 &&
               static_cast<int>(threadIdx.x) == (share.end - share.begin) / W % kTeamThreads) {  // it reads that vector
      for (int j = share.end; j % W != 0; ++j) store_one(landed + (j - share.begin), lowest());
      written_for_copies();
    }
    const HeldRow<T, W, NV, true, kShifted> held(landed + share.lead,
                                                 {share.begin, wanted ? share.end : share.first(), share.lead});
    const float peeked = wanted && threadIdx.x == 0 ? op.peek(info, held) : 0.0f;
    __syncthreads();  // everyone has read what landed
    if (threadIdx.x == 0) {
      ask(i + step, later);
      later = info_of(i + 2 * step);
    }
    if (!wanted) {
      op.template skip<W, kShifted>(i, share);
      continue;
    }
    op.run(team, i, info, peeked, held, shared[buffer], out);
    buffer ^= 1;
  }
  out.finish();
#endif
}

// False where the device has not enough shared memory, as some newer than Hopper.
template <class T, int NV, class Op, bool kShifted>
bool launch_teams(const Context& ctx, const char* where, const Op& op, const Tensor& x, unsigned blocks, bool early) {
  const auto rows = static_cast<int>(x.sizes[0]);  // long ones: there is no memory for 2^30 of them
  const auto columns = static_cast<int>(x.sizes[1]);
  const int64_t elements = kShifted ? most_vectors(columns, kLanes<T>) * kLanes<T> : columns;
  const auto segment = static_cast<int>(round_up(divide_up(elements, blocks), 128 / static_cast<int64_t>(sizeof(T))));
  constexpr auto kKernel = row_team_kernel<T, NV, Op, kShifted>;
  const size_t shared = static_cast<size_t>(segment) * sizeof(T) + SentRows<kPieceOf<NV>>::bytes(kTeamThreads);
  constexpr size_t kStatic = 2 * sizeof(typename Op::Shared) + sizeof(Team::Shared) + 64;
  if (shared + kStatic > static_cast<size_t>(device_numbers(ctx.device).shared_bytes)) return false;
  allow_shared<kKernel>(ctx.device, where);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {blocks, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kTeamThreads);
  config.dynamicSmemBytes = shared;
  config.stream = stream_of(ctx);
  config.attrs = attributes;
  config.numAttrs = 1;
  const unsigned clusters = resident_clusters(kKernel, ctx.device, config);
  config.gridDim = dim3(blocks * static_cast<unsigned>(std::min<int64_t>(rows, clusters)));
  config.numAttrs = early ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kKernel, op, rows_of<const T>(x), rows, columns, blocks, segment), where);
  return true;
}

// In vectors of 16 bytes, the rows being of so many at most.
template <class T, class Op, bool kShifted>
bool run_vectors(const Context& ctx, const char* where, const Op& op, const Tensor& x, int64_t vectors, unsigned grid,
                 bool early) {
  constexpr int W = kLanes<T>;
  const auto columns = static_cast<int>(x.sizes[1]);
  if (vectors <= 4 * kRowThreads) {
    row_kernel<T, W, 4, Op, kShifted>
        <<<grid, row_threads(vectors), 0, stream_of(ctx)>>>(op, rows_of<const T>(x), x.sizes[0], columns);
    check_launch(where);
    return false;
  }
  if constexpr (Op::kTeams) {
    // The smallest team whose threads hold ten vectors each, or twice as many where eight blocks are not enough. Teams
    // of 3, 5 and 7 leave more of an H200's groups of multiprocessors idle.
    constexpr unsigned kSizes[] = {1, 2, 4, 6, kMaxTeam};
    unsigned blocks = kMaxTeam;
    for (const unsigned team : kSizes) {
      if (vectors <= int64_t{10} * kTeamThreads * team) {
        blocks = team;
        break;
      }
    }
    const int64_t each = divide_up(vectors, int64_t{kTeamThreads} * blocks);
    constexpr int64_t kMost = std::is_same_v<T, float> ? 20 : 16;  // 16-bit rows need more registers beside them
    if (device_numbers(ctx.device).code >= 90 && each <= kMost) {
      const auto launch = each <= 8    ? launch_teams<T, 8, Op, kShifted>
                          : each <= 10 ? launch_teams<T, 10, Op, kShifted>
                          : each <= 16 ? launch_teams<T, 16, Op, kShifted>
                                       : launch_teams<T, kMost, Op, kShifted>;
      if (launch(ctx, where, op, x, blocks, early)) return true;
    }
  }
  row_kernel<T, W, 12, Op, kShifted>
      <<<grid, kRowThreads, 0, stream_of(ctx)>>>(op, rows_of<const T>(x), x.sizes[0], columns);
  check_launch(where);
  return false;
}

// Runs `op` on each row of x. `early`: it may begin while the kernel before it, one of ours, is ending, and waits for
// that itself. Says whether the kernel after it may do the same.
template <class T, class Op>
bool run_rows(const Context& ctx, const char* where, const Op& op, const Tensor& x, Reach reach, bool early = false) {
  if (x.sizes[1] > kMaxColumns) {
    throw Error(ErrorCode::unsupported, {.where = where,
                                         .what = "a row is too long for a GPU",
                                         .expected = "at most " + std::to_string(kMaxColumns) + " columns",
                                         .got = std::to_string(x.sizes[1])});
  }
  const auto columns = static_cast<int>(x.sizes[1]);
  const auto grid = static_cast<unsigned>(std::min(x.sizes[0], kMaxGridX));
  switch (reach) {
    case Reach::vectors:
      return run_vectors<T, Op, false>(ctx, where, op, x, divide_up(columns, kLanes<T>), grid, early);
    case Reach::shifted:
      return run_vectors<T, Op, true>(ctx, where, op, x, most_vectors(columns, kLanes<T>), grid, early);
    case Reach::elements: break;
  }
  row_kernel<T, 1, 4, Op>
      <<<grid, row_threads(columns), 0, stream_of(ctx)>>>(op, rows_of<const T>(x), x.sizes[0], columns);
  check_launch(where);
  return false;
}

}  // namespace tigon::cuda
