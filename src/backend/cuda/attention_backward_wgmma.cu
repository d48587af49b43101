// attention backward on Hopper's tensor cores, in one pass of five products. A piece of work is 128 keys of one head;
// its dk and dv stay in registers while it walks over the queries. Its share of dq is added to f32 sums in memory by
// TMA (reduce-add). The pieces of a head take turns at each tile of dq, from the first keys to the last: one order of
// adding, the same bits in every run.
//
// Turns cost little, for three reasons. Blocks walk in step (query tiles outside, the heads that share keys inside), so
// a turn has usually come when it is needed. Two threads send dq in alternation: one waits for its copy to be complete
// while the other sends. And few heads are worked on at a time, so their sums stay in the L2 cache; sums of later heads
// reuse the same memory.
//
// The grid is persistent. In each thread block one thread prefetches keys and queries by TMA, two send dq, and two
// warpgroups own 64 keys each: while one computes exponentials, the other's products run.
#include "backend/cuda/attention.cuh"
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/attention_walk.hpp"
#include "backend/cuda/buffers.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/tensor_map.hpp"
#include "backend/cuda/wgmma.cuh"

namespace tigon::cuda {

namespace {

constexpr int kGroupKeys = 64, kGroups = 2, kKeys = kGroupKeys * kGroups;
constexpr int kThreads = 128 * (1 + kGroups), kStages = 2, kSenders = 2;
[[maybe_unused]] constexpr int kFetcherRegisters = 24,
                               kGroupRegisters = 240;  // in all the 168 that each thread has at first

// All that the threads of a block tell each other.
struct Signals {
  Buffers<2> taken;  // pieces
  int64_t pieces_taken[2];
  Buffers<1> keys;
  Buffers<kStages> stages;  // of queries
  Buffers<2> scores;        // ds
  Buffers<kSenders> dqs;
  uint64_t sums_here[kSenders];

#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // elsewhere nobody calls it
  __device__ __forceinline__ void init() {
    taken.init(1, 4 * kGroups + kSenders);
    keys.init(1, 4 * kGroups);
    stages.init(1, 4 * kGroups);
    scores.init(4 * kGroups, 4 * kGroups);
    dqs.init(4 * kGroups, 1);
    for (uint64_t& barrier : sums_here) init_barrier(&barrier);
    fence_barriers();
  }
#endif
};

constexpr int kDqRowBytes = 1024;

template <int D>
struct BackwardShape {
  static constexpr int kQueries = D > 64 ? 64 : 128;  // per step: what registers allow
  using KeyTile = PanelTile<kKeys, D>;
  using QueryTile = PanelTile<kQueries, D>;
  using ScoreTile = PanelTile<kKeys, kQueries>;                  // ds
  static constexpr int kHalfBytes = kQueries * D * 4 / kGroups;  // of a step's dq, what a warpgroup holds
  static constexpr int kDqBytes = kGroups * kHalfBytes;
  static constexpr int kDqRows = kDqBytes / kDqRowBytes;  // as TMA sees it
  static constexpr int kKeysAt = 0;                       // in shared memory, tiles aligned to 1024
  static constexpr int kQueriesAt = kKeysAt + 2 * KeyTile::kBytes;
  static constexpr int kScoresAt = kQueriesAt + kStages * 2 * QueryTile::kBytes;
  static constexpr int kDqAt = kScoresAt + 2 * ScoreTile::kBytes;
  static constexpr int kStatisticsAt = kDqAt + kSenders * kDqBytes;
  static constexpr int kSignalsAt = kStatisticsAt + kStages * 2 * kQueries * 4;
  static constexpr int kBytes = kSignalsAt + sizeof(Signals);
};

// Where dq is added up, and whose turn it is. There is room for some heads of keys: when those are done, others follow.
struct DqSums {
  unsigned long long* next_piece;
  unsigned* turns;  // [room, group, tiles]: how many pieces have added to it, or taken the sum
  float* sums;      // [room, group, tiles, halves]: as warpgroups hold them, four of each thread, then the next four
  int64_t room;
};

template <class T>
struct BackwardJob {
  CUtensorMap k{}, v{}, q{}, dout{};
  // Copies without a map would do; compute-sanitizer's racecheck takes those for writes of the thread that asks for
  // them.
  CUtensorMap lse2{}, delta{}, dq_sums{};
  Heads<T> dq{}, dk{}, dv{};
  DqSums sums{};
  const int32_t* ends = nullptr;  // [batch, pitch], or null
  int64_t pitch = 0;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ void wait_for_turn(const unsigned* turn, unsigned mine) {
  unsigned now = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  } while (now != mine);
}
__device__ __forceinline__ void end_turn(unsigned* turn, unsigned taken) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(turn), "r"(taken) : "memory");
}
// Orders this thread's accesses to memory with what it asks of TMA, both ways (the generic and the async proxy).
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async;" ::: "memory"); }

// What all roles of a thread block know: the call, and where things lie in shared memory. `use` counts steps.
template <class T, int D, bool kDocuments>
struct Block {
  using Shape = BackwardShape<D>;
  using KeyTile = typename Shape::KeyTile;
  using QueryTile = typename Shape::QueryTile;
  using ScoreTile = typename Shape::ScoreTile;
  static constexpr int kQueries = Shape::kQueries;
  using Walk = AttentionWalk<kKeys, kQueries, kDocuments>;

  const BackwardJob<T>& job;
  const AttentionSizes& n;
  const AttentionGrid& grid;
  int64_t pieces;
  unsigned char* memory;
  uint32_t shared;  // its address
  Signals& signals;

  __device__ __forceinline__ KeyTile k_tile() const { return {shared + Shape::kKeysAt}; }
  __device__ __forceinline__ KeyTile v_tile() const { return {shared + Shape::kKeysAt + KeyTile::kBytes}; }
  __device__ __forceinline__ QueryTile q_tile(int use) const {
    return {shared + Shape::kQueriesAt + static_cast<uint32_t>(use % kStages * 2) * QueryTile::kBytes};
  }
  __device__ __forceinline__ QueryTile dout_tile(int use) const { return {q_tile(use).address + QueryTile::kBytes}; }
  __device__ __forceinline__ ScoreTile ds_tile(int use) const {
    return {shared + Shape::kScoresAt + static_cast<uint32_t>(use % 2) * ScoreTile::kBytes};
  }
  __device__ __forceinline__ float* lse2(int use) const {
    return reinterpret_cast<float*>(memory + Shape::kStatisticsAt) + use % kStages * 2 * kQueries;
  }
  __device__ __forceinline__ float* delta(int use) const { return lse2(use) + kQueries; }
  __device__ __forceinline__ unsigned char* dq(int use) const {
    return memory + Shape::kDqAt + use % kSenders * Shape::kDqBytes;
  }

  // Of keys, one more than the last query that sees each.
  __device__ __forceinline__ const int32_t* ends(int64_t batch) const { return job.ends + batch * job.pitch; }
  __device__ __forceinline__ Walk walk(const AttentionWork& work) const {
    if constexpr (!kDocuments) return Walk(work.row_block, n.seq, n.causal, nullptr, nullptr);
    return Walk(work.row_block, n.seq, n.causal, n.starts + work.batch * n.seq, ends(work.batch));
  }
  // Calls f(head, tile) in the order of a walk, each tile in all the heads that share the keys.
  template <class F>
  __device__ __forceinline__ void for_steps(const AttentionWork& work, const Walk& walk, const F& f) const {
    for (int tile = walk.last_tile; tile >= walk.first_tile; --tile) {
      for (int64_t head = work.head * n.group; head < (work.head + 1) * n.group; ++head) f(head, tile);
    }
  }

  // Pieces are taken in order: whoever waits for an earlier one waits for a thread block that runs.
  template <class F>
  __device__ __forceinline__ void for_pieces(bool by_warp, const F& f) const {
    for (int use = 0;; ++use) {
      signals.taken.wait_full(use);
      const int64_t piece = signals.pieces_taken[use % 2];
      if (by_warp) {
        signals.taken.release_by_warp(use);
      } else {
        signals.taken.release(use);
      }
      if (piece >= pieces) return;
      f(grid.work(piece));
    }
  }
};

// The thread that takes pieces and prefetches their keys and queries.
template <class T, int D, bool kDocuments>
__device__ __forceinline__ void fetch_pieces(const Block<T, D, kDocuments>& block) {
  using Shape = BackwardShape<D>;
  constexpr int N = Shape::kQueries;
  const auto& [job, n, grid, pieces, memory, shared, signals] = block;
  wait_for_previous();  // all others act on what this thread has fetched
  for (int use = 0, piece_use = 0;; ++piece_use) {
    signals.taken.to_fill(piece_use);
    const auto piece = static_cast<int64_t>(atomicAdd(job.sums.next_piece, 1ull));
    signals.pieces_taken[piece_use % 2] = piece;
    signals.taken.filled(piece_use);
    if (piece >= pieces) return;
    const AttentionWork work = grid.work(piece);
    const auto walk = block.walk(work);
    const auto batch = static_cast<int>(work.batch), head = static_cast<int>(work.head);
    uint64_t* keys_full = signals.keys.to_fill(piece_use);
    expect_bytes(keys_full, 2 * Shape::KeyTile::kBytes);
    block.k_tile().fetch(job.k, walk.first_key, head, batch, keys_full);
    block.v_tile().fetch(job.v, walk.first_key, head, batch, keys_full);
    block.for_steps(work, walk, [&](int64_t of, int tile) {
      const int query = tile * N;
      const auto q_head = static_cast<int>(of), row = static_cast<int>(work.batch * n.heads + of);
      uint64_t* full = signals.stages.to_fill(use);
      expect_bytes(full, 2 * Shape::QueryTile::kBytes + 2 * N * sizeof(float));
      block.q_tile(use).fetch(job.q, query, q_head, batch, full);
      block.dout_tile(use).fetch(job.dout, query, q_head, batch, full);
      copy_row_part(block.lse2(use), job.lse2, query, row, full);
      copy_row_part(block.delta(use), job.delta, query, row, full);
      ++use;
    });
  }
}

// A thread that waits for a step's turn and sends its dq. What was sent takes its time to arrive, and the news of it
// too: meanwhile the other one sends the next.
template <class T, int D, bool kDocuments>
__device__ __forceinline__ void send_dq(const Block<T, D, kDocuments>& block, int sender) {
  using Shape = BackwardShape<D>;
  const auto& [job, n, grid, pieces, memory, shared, signals] = block;
  int use = 0;
  block.for_pieces(false, [&](const AttentionWork& work) {
    const auto walk = block.walk(work);
    const int64_t head = work.batch * n.kv_heads + work.head;
    const int64_t place = head % job.sums.room, heads_before = head / job.sums.room;
    block.for_steps(work, walk, [&](int64_t of, int tile) {
      const int at = use++;
      if (at % kSenders != sender) return;
      const int64_t index = (place * n.group + (of - work.head * n.group)) * walk.tiles + tile;
      unsigned* turn = job.sums.turns + index;
      float* sums = job.sums.sums + index * (Shape::kDqBytes / 4);
      wait_for_turn(turn, walk.turn(tile, heads_before));
      fence_copies();
      if (walk.is_last(tile)) {
        if (!walk.is_first(tile)) {
          expect_bytes(signals.sums_here + sender, Shape::kDqBytes);
          copy_row_part(block.dq(at), job.dq_sums, 0, static_cast<int>(index) * Shape::kDqRows,
                        signals.sums_here + sender);
        }
        signals.dqs.wait_full(at);
        signals.dqs.release(at);
      } else {
        signals.dqs.wait_full(at);
        if (!walk.is_first(tile)) {
          send_bulk_to_add(sums, block.dq(at), Shape::kDqBytes);
        } else {
          send_bulk(sums, block.dq(at), Shape::kDqBytes);
        }
        wait_sent_read();
        signals.dqs.release(at);
        wait_sent();
        fence_copies();
      }
      end_turn(turn, walk.turns_taken(tile));
    });
  });
}

// p = e^(scale·score − lse), for lse2 = lse·log2(e).
template <int N8>
__device__ __forceinline__ void exponentials(float (&p)[N8][4], const float (&score)[N8][4], const float* lse2,
                                             float scale_log2) {
  lse2 += threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < N8; ++j) {
    const float2 by = *reinterpret_cast<const float2*>(lse2 + j * 8);
#pragma unroll
    for (int e = 0; e < 4; ++e) p[j][e] = exp2_fast(fmaf(score[j][e], scale_log2, -(e % 2 == 0 ? by.x : by.y)));
  }
}

// p becomes 0 where a query does not see a key. Queries beyond the last have an infinite lse2. `ends` are those of the
// row's keys, where it has several documents.
template <bool kDocuments, int N8>
__device__ __forceinline__ void mask(float (&p)[N8][4], const AttentionSizes& n, const int32_t* ends, int first_key,
                                     int first_query) {
  const int seq = static_cast<int>(n.seq), lane = static_cast<int>(threadIdx.x) % 32;
  int end[2] = {};
  if constexpr (kDocuments) end[0] = ends[first_key + lane / 4], end[1] = ends[first_key + lane / 4 + 8];
#pragma unroll
  for (int j = 0; j < N8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int r = first_key + lane / 4 + e / 2 * 8, c = first_query + j * 8 + lane % 4 * 2 + e % 2;
      if (r >= seq || (n.causal && c < r) || (kDocuments && c >= end[e / 2])) p[j][e] = 0.0f;
    }
  }
}

// ds = p·(dp − delta) as the left operand of a product; p too, where it is not one yet.
template <class T, bool kPackP, int N8>
__device__ __forceinline__ void score_gradients(uint32_t (&ds_left)[N8 / 2][4], uint32_t (&p_left)[N8 / 2][4],
                                                const float (&p)[N8][4], const float (&dp)[N8][4], const float* delta) {
  delta += threadIdx.x % 4 * 2;
  float ds[N8][4];
#pragma unroll
  for (int j = 0; j < N8; ++j) {
    const float2 by = *reinterpret_cast<const float2*>(delta + j * 8);
#pragma unroll
    for (int e = 0; e < 4; ++e) ds[j][e] = p[j][e] * (dp[j][e] - (e % 2 == 0 ? by.x : by.y));
    if (j % 2 == 0) continue;
    if constexpr (kPackP) as_left<T>(p_left[j / 2], p[j - 1], p[j]);
    as_left<T>(ds_left[j / 2], ds[j - 1], ds[j]);
  }
}

// What a thread holds of dq to and from memory it shares with who sends it.
__device__ __forceinline__ void store_dq(float4* to, const float (&dq)[8][4]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) to[128 * j] = make_float4(dq[j][0], dq[j][1], dq[j][2], dq[j][3]);
}
__device__ __forceinline__ void add_dq(float (&dq)[8][4], const float4* from) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 before = from[128 * j];
    dq[j][0] += before.x;
    dq[j][1] += before.y;
    dq[j][2] += before.z;
    dq[j][3] += before.w;
  }
}

// A warpgroup, which owns 64 keys of each piece.
template <class T, int D, bool kDocuments>
__device__ __forceinline__ void own_keys(const Block<T, D, kDocuments>& block, int group) {
  using Shape = BackwardShape<D>;
  constexpr int N = Shape::kQueries;
  // Of dq, the second warpgroup has the later queries of a tile, or, where a tile has but 64, the later columns.
  constexpr bool kSplitColumns = N == 64;
  // Whether p's product may run while ds is made, which needs registers for both.
  constexpr bool kDvFirst = N == 64;
  const auto& [job, n, grid, pieces, memory, shared, signals] = block;
  auto& [taken, pieces_taken, keys, stages, scores, dqs, sums_here] = signals;
  const int group_key = group * kGroupKeys, warp_key = group_key + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  const auto dim = static_cast<int>(n.dim), seq = static_cast<int>(n.seq);

  int use = 0, key_use = 0;
  uint32_t sums_phase = 0;  // a bit for each sender
  block.for_pieces(true, [&](const AttentionWork& work) {
    const auto walk = block.walk(work);
    const int first = walk.first_key + group_key, row = walk.first_key + warp_key;
    float dk[D / 8][4] = {};
    float dv[D / 8][4] = {};
    float score[N / 8][4], dp[N / 8][4], dq[8][4];
    uint32_t p_left[N / 16][4], ds_left[N / 16][4];

    const auto last_head = static_cast<int>(n.group) - 1;
    int tile = walk.last_tile, head = 0;  // of this step, heads counted from the first that shares the keys
    int dq_tile = 0, dq_head = 0;         // of the step before

    // The scores of a step, not waited for.
    const auto begin_step = [&](int at) {
      stages.wait_full(at);
      multiply<T>(score, block.k_tile().from_row(group_key).forgotten(), block.q_tile(at));
    };
    // What a step adds to dq, of all keys, not waited for; and its end.
    const auto begin_dq = [&](int at) {
      scores.wait_full(at);
      multiply_mn_major<T>(dq, block.ds_tile(at).from_panel(kSplitColumns ? 0 : group),
                           block.k_tile().from_panel(kSplitColumns ? group : 0).forgotten());
    };
    const auto end_dq = [&](int at) {
      scores.release_by_warp(at);
      auto* half = reinterpret_cast<float4*>(block.dq(at) + group * Shape::kHalfBytes) + threadIdx.x % 128;
      if (walk.is_last(dq_tile)) {  // what the others have left is added here instead, and written as dq
        if (walk.is_first(dq_tile)) {
          dqs.to_fill(at);  // nothing is left there; but not two uses ahead of the sender
        } else {
          wait_barrier(sums_here + at % kSenders, sums_phase >> at % kSenders & 1);
          sums_phase ^= 1 << at % kSenders;
          add_dq(dq, half);
        }
        const int first_column = kSplitColumns ? 64 * group : 0;
        const int warp_row = dq_tile * N + (kSplitColumns ? warp_key % 64 : warp_key);
        write_rows<T, 64>(job.dq.head(work.batch, work.head * n.group + dq_head) + first_column, job.dq.row_stride,
                          warp_row, seq, dim - first_column, dq, n.scale, n.scale);
      } else {
        dqs.to_fill(at);
        store_dq(half, dq);
        written_for_copies();
      }
      dqs.filled_by_warp(at);
    };
    // The rest of a step but for dq, which needs the other warpgroup's ds and is left to the next step, and the
    // beginning of the next: tensor cores always have something to do.
    const auto go_on = [&]<bool kDq, bool kNext>(std::bool_constant<kDq>, std::bool_constant<kNext>) {
      const int query = tile * N;
      multiply<T>(dp, block.v_tile().from_row(group_key).forgotten(), block.dout_tile(use));
      float p[N / 8][4];
      exponentials(p, score, block.lse2(use), n.scale * kLog2E);
      // In a branch of its own, since most steps have nothing to mask.
      const int32_t* const ends = kDocuments ? block.ends(work.batch) : nullptr;
      if (first + kGroupKeys > seq || (n.causal && query < first + kGroupKeys - 1) ||
          (kDocuments && query + N > ends[first])) {
        mask<kDocuments>(p, n, ends, row, query);
      }
      if constexpr (kDvFirst) {
#pragma unroll
        for (int j = 0; j < N / 16; ++j) as_left<T>(p_left[j], p[2 * j], p[2 * j + 1]);
        add_multiple<T>(dv, p_left, block.dout_tile(use));
      }
      wait_for_products<kDvFirst ? 1 : 0>();
      score_gradients<T, !kDvFirst>(ds_left, p_left, p, dp, block.delta(use));
      if constexpr (!kDvFirst) add_multiple<T>(dv, p_left, block.dout_tile(use));
      add_multiple<T>(dk, ds_left, block.q_tile(use));
      scores.to_fill(use);
#pragma unroll
      for (int j = 0; j < N / 16; ++j) block.ds_tile(use).store(warp_key, 16 * j, ds_left[j]);
      written_for_copies();
      scores.filled_by_warp(use);
      // dq(i-1) keeps tensor cores busy while the registers of this step's operands become free for the next scores.
      if constexpr (kDq) begin_dq(use - 1);
      wait_for_products<kDq ? 1 : 0>();
      stages.release_by_warp(use);
      if constexpr (kNext) begin_step(use + 1);
      if constexpr (kDq) {
        wait_for_products<kNext ? 1 : 0>();
        end_dq(use - 1);
      }
      if constexpr (kNext) wait_for_products<0>();
      ++use;
      dq_tile = tile;
      dq_head = head;
      tile -= head == last_head ? 1 : 0;
      head = head == last_head ? 0 : head + 1;
    };

    keys.wait_full(key_use);
    begin_step(use);
    wait_for_products<0>();
    constexpr std::true_type kYes;
    constexpr std::false_type kNo;
    const int steps = walk.walked() * static_cast<int>(n.group);
    if (steps == 1) {
      go_on(kNo, kNo);
    } else {
      go_on(kNo, kYes);
      for (int step = 1; step < steps - 1; ++step) go_on(kYes, kYes);
      go_on(kYes, kNo);
    }
    begin_dq(use - 1);
    wait_for_products<0>();
    keys.release_by_warp(key_use);
    ++key_use;
    end_dq(use - 1);

    write_rows<T, D>(job.dk.head(work.batch, work.head), job.dk.row_stride, row, seq, dim, dk, n.scale, n.scale);
    write_rows<T, D>(job.dv.head(work.batch, work.head), job.dv.row_stride, row, seq, dim, dv, 1.0f, 1.0f);
  });
}

#endif

template <class T, int D, bool kDocuments>
__global__ void __launch_bounds__(kThreads, 1)
    attention_backward_wgmma_kernel(const __grid_constant__ BackwardJob<T> job, AttentionSizes n, AttentionGrid grid,
                                    int64_t pieces) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  const Block<T, D, kDocuments> block{job,
                                      n,
                                      grid,
                                      pieces,
                                      memory,
                                      shared_address(memory),
                                      *reinterpret_cast<Signals*>(memory + BackwardShape<D>::kSignalsAt)};
  if (threadIdx.x == 0) block.signals.init();
  __syncthreads();
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0) - 1;
  if (group < 0) {
    give_registers<kFetcherRegisters>();
    if (threadIdx.x == 0) return fetch_pieces(block);
    if (threadIdx.x % 32 == 0 && threadIdx.x <= 32 * kSenders) send_dq(block, static_cast<int>(threadIdx.x) / 32 - 1);
    return;
  }
  take_registers<kGroupRegisters>();
  own_keys(block, group);
#endif
}

// What the scratch of a call holds, and the order of its work.
template <int D>
struct DqScratch {
  AttentionGrid grid;
  int64_t room, turns;

  DqScratch(const AttentionSizes& n, int multiprocessors) {
    const int64_t pieces = divide_up(n.seq, kKeys);
    grid = {.batches = n.batch,
            .heads = n.kv_heads,
            .row_blocks = pieces,
            .panels = 1,
            .last_first = false,
            .together = heads_together(pieces, multiprocessors)};
    room = std::min(grid.together, n.batch * n.kv_heads);  // more would not make it faster
    turns = room * n.group * divide_up(n.seq, BackwardShape<D>::kQueries);
  }
  int64_t counter_bytes() const { return round_up(8 + 4 * turns, 128); }
  // A piece that has a head to itself adds nothing to anything.
  int64_t bytes() const { return counter_bytes() + (grid.row_blocks > 1 ? turns * BackwardShape<D>::kDqBytes : 0); }
  DqSums sums(unsigned char* memory) const {
    return {.next_piece = reinterpret_cast<unsigned long long*>(memory),
            .turns = reinterpret_cast<unsigned*>(memory + 8),
            .sums = reinterpret_cast<float*>(memory + counter_bytes()),
            .room = room};
  }
};

// False where TMA cannot read the tensors as they lie.
template <class T, int D, bool kDocuments>
bool launch(const Context& ctx, const ops::AttentionBackward& args, const AttentionStatistics& statistics,
            unsigned char* scratch) {
  using Shape = BackwardShape<D>;
  const AttentionSizes n = attention_sizes(args);
  const int multiprocessors = device_numbers(ctx.device).multiprocessors;
  const DqScratch<D> dq(n, multiprocessors);
  BackwardJob<T> job{.dq = heads_of<T>(args.dq),
                     .dk = heads_of<T>(args.dk),
                     .dv = heads_of<T>(args.dv),
                     .sums = dq.sums(scratch),
                     .ends = statistics.ends,
                     .pitch = attention_pitch(n.seq)};
  const auto map_statistics = [&](const float* data, CUtensorMap& map) {
    return map_row_parts(data, n.batch * n.heads, attention_pitch(n.seq), Shape::kQueries, map);
  };
  if (!map_statistics(statistics.lse2, job.lse2) || !map_statistics(statistics.delta, job.delta) ||
      !map_row_parts(job.sums.sums, dq.turns * Shape::kDqRows, kDqRowBytes / 4, kDqRowBytes / 4, job.dq_sums,
                     Shape::kDqRows) ||
      !map_heads(args.k, kKeys, job.k) || !map_heads(args.v, kKeys, job.v) ||
      !map_heads(args.q, Shape::kQueries, job.q) || !map_heads(args.dout, Shape::kQueries, job.dout)) {
    return false;
  }
  const int64_t pieces = dq.grid.blocks();
  const auto kernel = attention_backward_wgmma_kernel<T, D, kDocuments>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes), "attention_backward");
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(pieces, multiprocessors));
  check(cudaMemsetAsync(scratch, 0, static_cast<size_t>(dq.counter_bytes()), stream_of(ctx)), "attention_backward");
  attention_statistics(ctx, args, statistics);
  launch_early(ctx.device, true, stream_of(ctx), blocks, kThreads, Shape::kBytes, kernel, job, n, dq.grid, pieces);
  return true;
}

// All but the addresses, which are not known when scratch is booked.
bool layout_fits(const Context& ctx, const ops::AttentionBackward& args) {
  return has_warpgroup_products(ctx.device) && mma_fits(args) && args.q.elements() > 0 &&
         strides_aligned(args.q, args.k, args.v, args.dout, args.dq, args.dk, args.dv);
}

}  // namespace

int64_t attention_backward_wgmma_bytes(const Context& ctx, const ops::AttentionBackward& args) {
  if (!layout_fits(ctx, args)) return 0;
  const AttentionSizes n = attention_sizes(args);
  const int multiprocessors = device_numbers(ctx.device).multiprocessors;
  return n.dim <= 64 ? DqScratch<64>(n, multiprocessors).bytes() : DqScratch<128>(n, multiprocessors).bytes();
}

bool attention_backward_wgmma(const Context& ctx, const ops::AttentionBackward& args,
                              const AttentionStatistics& statistics, unsigned char* scratch) {
  if (!layout_fits(ctx, args) || !rows_aligned(args.q, args.k, args.v, args.dout, args.dq, args.dk, args.dv)) {
    return false;
  }
  const auto with_width = [&]<class T, int D>(T*, std::integral_constant<int, D>) {
    return args.starts ? launch<T, D, true>(ctx, args, statistics, scratch)
                       : launch<T, D, false>(ctx, args, statistics, scratch);
  };
  const auto with_type = [&]<class T>(T* type) {
    return args.q.sizes[3] <= 64 ? with_width(type, std::integral_constant<int, 64>())
                                 : with_width(type, std::integral_constant<int, 128>());
  };
  return args.q.dtype == DType::bf16 ? with_type(static_cast<bf16*>(nullptr)) : with_type(static_cast<f16*>(nullptr));
}

}  // namespace tigon::cuda
