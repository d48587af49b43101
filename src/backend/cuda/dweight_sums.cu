// A matrix product of Hopper's tensor cores that adds to sums kept as dweight_sums.hpp says.
//
// A persistent grid of clusters of two thread blocks. Both blocks work on the same 192 classes, each on 128 columns of
// its own. One thread of each prefetches tiles by TMA: its own x, and half of dlogits, which is multicast to both. Two
// warpgroups alternate between output tiles: while one runs its epilogue (adds its sums to those in memory), the
// other's products run. Smaller tiles were slower, and so were larger ones that both warpgroups share.
#include "backend/cuda/buffers.cuh"
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/dweight_sums.hpp"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/tensor_map.hpp"
#include "backend/cuda/wgmma.cuh"

namespace tigon::cuda {

namespace {

constexpr const char* kWhere = "fused_linear_cross_entropy";

constexpr int kPair = 2, kGroups = 2, kThreads = 128 * (1 + kGroups);
constexpr int kClasses = 192, kColumns = kSumColumns;
constexpr int kTokens = 64, kStages = 5;  // at a time, and so many times ahead
[[maybe_unused]] constexpr int kFetcherRegisters = 24,
                               kGroupRegisters = 240;  // in all the 168 that each thread has at first

using LogitsTile = PanelTile<kTokens, kClasses>;
using XTile = PanelTile<kTokens, kColumns>;

constexpr uint32_t kXAt = kStages * LogitsTile::kBytes, kSignalsAt = kXAt + kStages * XTile::kBytes;

struct Signals {
  Buffers<kStages> stages;
  uint64_t turn[kGroups];  // a warpgroup's, when the other has seen all stages of its tile
};
constexpr uint32_t kSharedBytes = kSignalsAt + sizeof(Signals);

struct Job {
  CUtensorMap dlogits{}, x{};
  bf16* dweight = nullptr;
  int64_t stride = 0;
  uint8_t* exponents = nullptr;
  const int64_t* counted = nullptr;
  int64_t begin = 0, end = 0;
  int tokens = 0, classes = 0, columns = 0, column_tiles = 0, column_pairs = 0, tiles = 0;
  bool last = false;
};

// What stands in dweight when a chunk's share comes.
enum class Before { nothing, bf16, fine };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Between f16 and f32, by the exponent of the largest of a row: that one is made to lie below 2^15.
struct FineScale {
  static constexpr uint32_t kLow = 30, kHigh = 254;
  static __device__ __forceinline__ uint32_t exponent_of(float largest) {
    return min(max(__float_as_uint(largest) >> 23, kLow), kHigh);
  }
  static __device__ __forceinline__ float to_f16(uint32_t exponent) { return __uint_as_float((268 - exponent) << 23); }
  static __device__ __forceinline__ float to_f32(uint32_t exponent) { return __uint_as_float((exponent - 14) << 23); }
};

// Of 32 columns of a row in memory, four lanes have 8 each, side by side. Where sums are fine, these are the ones that
// the lane computes. In bf16 they are in order: word i of lane l becomes word l of lane i, and back.
__device__ __forceinline__ void exchange(uint32_t (&w)[4]) {
  const bool odd = threadIdx.x % 2 != 0, upper = threadIdx.x / 2 % 2 != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
    (odd ? w[i] : w[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i + 2], 2);
    (upper ? w[i] : w[i + 2]) = got;
  }
}

// Of a row, `parts` of 32 columns: 8 elements each, which may lie off 16 bytes. Zeros beyond.
using Words = uint32_t[kColumns / 32][4];
template <bool kAligned>
__device__ __forceinline__ void load_words(Words& words, const bf16* from, int parts) {
#pragma unroll
  for (int part = 0; part < kColumns / 32; ++part, from += 32) {
    uint4 v{};
    if constexpr (kAligned) {
      if (part < parts) v = __ldcs(reinterpret_cast<const uint4*>(from));
    } else if (part < parts) {
      const auto* halves = reinterpret_cast<const uint16_t*>(from);
      const auto two = [&](int i) { return halves[2 * i] | static_cast<uint32_t>(halves[2 * i + 1]) << 16; };
      v = make_uint4(two(0), two(1), two(2), two(3));
    }
    words[part][0] = v.x, words[part][1] = v.y, words[part][2] = v.z, words[part][3] = v.w;
  }
}
template <bool kAligned>
__device__ __forceinline__ void store_words(bf16* to, const Words& words, int parts) {
#pragma unroll
  for (int part = 0; part < kColumns / 32; ++part, to += 32) {
    const uint32_t(&w)[4] = words[part];
    if (part >= parts) continue;
    if constexpr (kAligned) {
      __stcs(reinterpret_cast<uint4*>(to), make_uint4(w[0], w[1], w[2], w[3]));
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(w[i / 2] >> 16 * (i % 2));
    }
  }
}

__device__ __forceinline__ unsigned block_of_pair() {
  unsigned rank = 0;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void meet_pair() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// What all roles of a thread block know: the call, and where things lie in shared memory. `use` counts stages.
struct Block {
  const Job& job;
  unsigned char* memory;
  uint32_t shared;  // its address
  Signals& signals;
  int rank;  // of the block in its pair
  int steps;

  static __device__ __forceinline__ uint32_t logits_at(int use) {
    return static_cast<uint32_t>(use % kStages) * LogitsTile::kBytes;
  }
  static __device__ __forceinline__ uint32_t x_at(int use) {
    return kXAt + static_cast<uint32_t>(use % kStages) * XTile::kBytes;
  }
  // Neighbours share classes: dlogits are read from memory once.
  template <class F>
  __device__ __forceinline__ void for_tiles(int first, int by, const F& f) const {
    const int pairs = static_cast<int>(gridDim.x) / kPair, pair = static_cast<int>(blockIdx.x) / kPair;
    for (int i = first; pair + i * pairs < job.tiles; i += by) {
      const int tile = pair + i * pairs;
      f(i * steps, tile / job.column_pairs * kClasses, tile % job.column_pairs * kPair + rank);
    }
  }
};

// The thread that prefetches tiles.
__device__ __forceinline__ void fetch_tiles(const Block& block) {
  const Job& job = block.job;
  block.for_tiles(0, 1, [&](int use, int first_class, int column_tile) {
    for (int step = 0; step < block.steps; ++step, ++use) {
      uint64_t* full = block.signals.stages.to_fill(use);
      expect_bytes(full, LogitsTile::kBytes + XTile::kBytes);
#pragma unroll
      for (int panel = 0; panel < kClasses / 64; ++panel) {
        const int token = block.rank * (kTokens / kPair);
        copy_row_part_to((1u << kPair) - 1,
                         block.memory + block.logits_at(use) + panel * LogitsTile::kPanelBytes + token * 128,
                         job.dlogits, first_class + 64 * panel, step * kTokens + token, full);
      }
#pragma unroll
      for (int panel = 0; panel < kColumns / 64; ++panel) {
        copy_row_part(block.memory + block.x_at(use) + panel * XTile::kPanelBytes, job.x,
                      column_tile * kColumns + 64 * panel, step * kTokens, full);
      }
    }
  });
}

// Of an output tile, what a thread has: of each 64 classes two rows, 8 apart, and of these every 8th pair of columns.
using Sums = float[kClasses / 64][kColumns / 8][4];

// Asks for the products of one stage.
template <bool kAdd>
__device__ __forceinline__ void multiply_stage(Sums& sums, const Block& block, int use) {
  block.signals.stages.wait_full(use);
  const LogitsTile left{block.shared + block.logits_at(use)};
  const XTile right{block.shared + block.x_at(use)};
  begin_products();
#pragma unroll
  for (int token = 0; token < kTokens; token += 16) {
#pragma unroll
    for (int panel = 0; panel < kClasses / 64; ++panel) {
      const uint64_t classes = left.from_panel(panel).mn_major(token);
      if (kAdd || token > 0) {
        product_in_shared<bf16, true, true>(sums[panel], classes, right.mn_major(token));
      } else {
        product_in_shared<bf16, false, true>(sums[panel], classes, right.mn_major(token));
      }
    }
  }
  end_products();
}

// In both blocks of the pair: what was read may be overwritten.
__device__ __forceinline__ void release_stage(const Block& block, int use) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
  if (lane < kPair) arrive_in(static_cast<unsigned>(lane), block.signals.stages.empty + use % kStages);
}

// What the epilogue will read is brought near.
__device__ __forceinline__ void prefetch_tile(const Job& job, int first_class, int column_tile) {
  const int line = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
  for (int i = 0; i < kClasses / 64; ++i) {
    const int row = first_class + i * 64 + line / 2, column = column_tile * kColumns + line % 2 * 64;
    if (row < job.classes && column < job.columns) prefetch_l2(job.dweight + row * job.stride + column);
  }
}

// The epilogue's part of a row: adds what stood in dweight, as words and their exponent.
template <Before kBefore>
__device__ __forceinline__ void add_before(float (&sums)[kColumns / 8][4], int i, Words& words, uint32_t exponent) {
  const auto word = [&](int j) -> uint32_t& { return words[j / 4][j % 4]; };
  if constexpr (kBefore == Before::fine) {
    const float factor = FineScale::to_f32(exponent);
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&word(j)));
      sums[j][2 * i] = fmaf(two.x, factor, sums[j][2 * i]);
      sums[j][2 * i + 1] = fmaf(two.y, factor, sums[j][2 * i + 1]);
    }
  } else if constexpr (kBefore == Before::bf16) {
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      if (j % 4 == 0) exchange(words[j / 4]);
      sums[j][2 * i] += __uint_as_float(word(j) << 16);
      sums[j][2 * i + 1] += __uint_as_float(word(j) & 0xffff0000u);
    }
  }
}

// The row as it will stand in dweight: bf16 at the end, fine until then; returns the exponent then.
__device__ __forceinline__ void as_bf16(Words& words, const float (&sums)[kColumns / 8][4], int i) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    words[j / 4][j % 4] = pack_two<bf16>(sums[j][2 * i], sums[j][2 * i + 1]);
    if (j % 4 == 3) exchange(words[j / 4]);
  }
}
__device__ __forceinline__ uint32_t as_fine(Words& words, const float (&sums)[kColumns / 8][4], int i) {
  float largest = 0.0f;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    largest = fmaxf(largest, fmaxf(fabsf(sums[j][2 * i]), fabsf(sums[j][2 * i + 1])));
  }
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
  const uint32_t exponent = FineScale::exponent_of(largest);
  const float factor = FineScale::to_f16(exponent);
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    words[j / 4][j % 4] = pack_two<f16>(sums[j][2 * i] * factor, sums[j][2 * i + 1] * factor);
  }
  return exponent;
}

// The rows of an output tile that a lane looks after: 8 and 56 apart by turns.
struct Rows {
  static constexpr int kRows = kClasses / 32;
  int first, parts;
  const Job& job;
  bf16* first_words;
  uint8_t* first_exponent;

  __device__ __forceinline__ Rows(const Job& job, int first_class, int column_tile)
      : first(first_class + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4),
        parts((job.columns - column_tile * kColumns) / 32),  // none in the second block of the last pair
        job(job),
        first_words(job.dweight + first * job.stride + column_tile * kColumns + threadIdx.x % 4 * 8),
        first_exponent(job.exponents + int64_t{first} * job.column_tiles + column_tile) {}
  static __device__ __forceinline__ int row_at(int r) { return r / 2 * 64 + r % 2 * 8; }
  __device__ __forceinline__ bool inside(int r) const { return first + row_at(r) < job.classes && parts > 0; }
  __device__ __forceinline__ bf16* words_at(int r) const { return first_words + row_at(r) * job.stride; }
  __device__ __forceinline__ uint8_t* exponent_at(int r) const { return first_exponent + row_at(r) * job.column_tiles; }
};

// The epilogue: adds the sums to what stands in dweight, two rows at a time.
template <Before kBefore, bool kAligned>
__device__ __forceinline__ void add_to_memory(Sums& sums, const Rows& rows, bool last) {
#pragma unroll
  for (int pair = 0; pair < Rows::kRows; pair += 2) {
    Words words[2];
    uint32_t exponents[2];
    if constexpr (kBefore != Before::nothing) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = pair + i;
        if (kBefore == Before::fine) exponents[i] = rows.inside(r) ? *rows.exponent_at(r) : FineScale::kLow;
        load_words<kAligned>(words[i], rows.words_at(r), rows.inside(r) ? rows.parts : 0);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = pair + i;
      add_before<kBefore>(sums[pair / 2], i, words[i], exponents[i]);
      if (last) {
        as_bf16(words[i], sums[pair / 2], i);
      } else {
        const uint32_t exponent = as_fine(words[i], sums[pair / 2], i);
        if (threadIdx.x % 4 == 0 && rows.inside(r)) *rows.exponent_at(r) = static_cast<uint8_t>(exponent);
      }
      if (rows.inside(r)) store_words<kAligned>(rows.words_at(r), words[i], rows.parts);
    }
  }
}

// A warpgroup, which has every other output tile.
template <Before kBefore, bool kAligned>
__device__ __forceinline__ void compute_tiles(const Block& block, int group, bool last) {
  uint64_t* turn = block.signals.turn;
  Sums sums;
  int turns = 0;
  block.for_tiles(group, kGroups, [&](int use, int first_class, int column_tile) {
    if (kBefore != Before::nothing) prefetch_tile(block.job, first_class, column_tile);
    // Stages go around: who waited for those of a tile to come might see those of an earlier one.
    if (group + turns > 0) wait_barrier(turn + group, static_cast<uint32_t>(group + turns - 1) & 1);
    ++turns;
    multiply_stage<false>(sums, block, use++);
    for (int step = 1; step < block.steps; ++step) {
      multiply_stage<true>(sums, block, use++);
      wait_for_products<1>();
      release_stage(block, use - 2);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(turn + (1 - group));
    const Rows rows(block.job, first_class, column_tile);
    wait_for_products<0>();
    release_stage(block, use - 1);
    add_to_memory<kBefore, kAligned>(sums, rows, last);
  });
}

#endif

template <Before kBefore, bool kAligned>
__global__ void __launch_bounds__(kThreads, 1) add_to_dweight_kernel(const __grid_constant__ Job job) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  if (kBefore == Before::fine && job.begin >= *job.counted) return;
  const bool last = job.last || job.end >= *job.counted;
  auto& signals = *reinterpret_cast<Signals*>(memory + kSignalsAt);
  if (threadIdx.x == 0) {
    signals.stages.init(1, kPair * 4);
    for (uint64_t& barrier : signals.turn) init_barrier(&barrier, 4);
    fence_barriers();
  }
  meet_pair();
  // Descriptors hold 18 bits of an address: without those that say which block of a pair it belongs to.
  const Block block{job,
                    memory,
                    shared_address(memory) & 0x3ffff,
                    signals,
                    static_cast<int>(block_of_pair()),
                    (job.tokens + kTokens - 1) / kTokens};
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0) - 1;
  if (group < 0) {
    give_registers<kFetcherRegisters>();
    if (threadIdx.x == 0) fetch_tiles(block);
  } else {
    take_registers<kGroupRegisters>();
    compute_tiles<kBefore, kAligned>(block, group, last);
  }
  __syncwarp();
  meet_pair();  // what one of the pair still sends to the other must find it there
#endif
}

template <Before kBefore, bool kAligned>
void launch(const Context& ctx, const Job& job) {
  constexpr auto kKernel = add_to_dweight_kernel<kBefore, kAligned>;
  allow_shared<kKernel>(ctx.device, kWhere);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kPair, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kPair);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream_of(ctx);
  config.attrs = &attribute;
  config.numAttrs = 1;
  const unsigned clusters = resident_clusters(kKernel, ctx.device, config);
  config.gridDim = dim3(kPair * static_cast<unsigned>(std::min<int64_t>(job.tiles, clusters)));
  check(cudaLaunchKernelEx(&config, kKernel, job), kWhere);
}

}  // namespace

bool dweight_sums_fit(const Context& ctx, const Tensor& dweight) {
  constexpr int64_t kMost = INT32_MAX / 2;  // numbers of rows and columns are ints in the kernel
  return has_warpgroup_products(ctx.device) && dweight.dtype == DType::bf16 && dweight.elements() > 0 &&
         dweight.sizes[0] <= kMost && dweight.sizes[1] <= kMost && dweight.sizes[1] % 32 == 0;
}

void add_to_dweight(const Context& ctx, const DweightChunk& chunk) {
  const int64_t classes = chunk.dlogits.sizes[1], hidden = chunk.x.sizes[1];
  const int64_t column_tiles = divide_up(hidden, kColumns), column_pairs = divide_up(column_tiles, kPair);
  Job job{.dweight = chunk.dweight.as<bf16>(),
          .stride = chunk.dweight.strides[0],
          .exponents = chunk.exponents,
          .counted = chunk.counted,
          .begin = chunk.begin,
          .end = chunk.end,
          .tokens = static_cast<int>(chunk.x.sizes[0]),
          .classes = static_cast<int>(classes),
          .columns = static_cast<int>(hidden),
          .column_tiles = static_cast<int>(column_tiles),
          .column_pairs = static_cast<int>(column_pairs),
          .tiles = static_cast<int>(divide_up(classes, kClasses) * column_pairs),
          .last = chunk.last};
  if (!map_panels(chunk.dlogits, kTokens / kPair, job.dlogits) || !map_panels(chunk.x, kTokens, job.x)) {
    throw Error(ErrorCode::internal, {.where = kWhere,
                                      .what = "the driver made no TMA map of the tensors",
                                      .fix = "Update the NVIDIA driver, or ask for an f32 dweight, which takes none."});
  }
  const auto with_before = [&]<bool kAligned>(std::bool_constant<kAligned>) {
    if (!chunk.first) return launch<Before::fine, kAligned>(ctx, job);
    if (chunk.accumulate) return launch<Before::bf16, kAligned>(ctx, job);
    launch<Before::nothing, kAligned>(ctx, job);
  };
  if (rows_aligned(chunk.dweight)) {
    with_before(std::true_type{});
  } else {
    with_before(std::false_type{});
  }
}

}  // namespace tigon::cuda
