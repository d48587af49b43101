// How rope is cut into blocks, and what travels with the launch.
#include "backend/cuda/rope.cuh"

#include <algorithm>
#include <vector>

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/row_launch.cuh"
#include "backend/rope_frequencies.hpp"
#include "backend/rope_layout.hpp"

namespace tigon::cuda {

namespace {

// The choices that were measured.
constexpr int kThreads = 128;
constexpr int kEach = 2;                       // items of a thread in flight, two vectors each
constexpr int kBlockItems = kThreads * kEach;  // a block takes as many tokens as give it about so many
constexpr int kMaxAngles = 2048;               // per block: 16 KB of shared memory

template <class T, class Index>
RopeHeads<T, Index> rope_heads(const Tensor& x, const Tensor& y) {
  RopeHeads<T, Index> heads;
  if (!x.present()) return heads;
  const Tensor from = rope_batched(x), to = rope_batched(y);
  heads.x = from.as<T>();
  heads.y = to.as<T>();
  for (int d = 0; d < 3; ++d) {
    heads.x_strides[d] = static_cast<Index>(from.strides[d]);
    heads.y_strides[d] = static_cast<Index>(to.strides[d]);
  }
  return heads;
}

bool strides_fit(const Tensor& t) {
  if (!t.present()) return true;
  return std::all_of(t.strides, t.strides + t.rank, [](int64_t s) { return s >= INT32_MIN && s <= INT32_MAX; });
}

template <class T, int W, class Index>
void rope_launch(const Context& ctx, const ops::Rope& args, RopeJob job) {
  const int64_t pairs = job.end_pair - job.first_pair, items = job.heads * divide_up(pairs, W);
  job.tile = static_cast<int>(std::clamp<int64_t>(kBlockItems / items, 1, std::max<int64_t>(1, kMaxAngles / pairs)));
  job.tile = std::min(job.tile, job.seq);
  job.tiles = static_cast<int>(divide_up(job.seq, job.tile));
  job.blocks *= job.tiles;
  const RopeBoth<T, Index> both{{rope_heads<T, Index>(args.q, args.q_out), rope_heads<T, Index>(args.k, args.k_out)}};
  rope_kernel<T, W, Index, kThreads, kEach>
      <<<grid_size(job.blocks), kThreads, rope_shared(job.tile, static_cast<int>(pairs)), stream_of(ctx)>>>(job, both);
}

void rope(const Context& ctx, const ops::Rope& args, float direction, const char* where) {
  const int64_t rotary = rope_rotary_dim(args), half = rotary / 2;
  const int64_t elements = args.q.elements() + (args.k ? args.k.elements() : 0);
  if (ctx.measuring() || elements == 0 || rotary == 0) return;
  const DeviceGuard guard(ctx);
  const RopeAngles angles(args);
  const Tensor q = rope_batched(args.q);

  const int64_t heads = q.sizes[1] + (args.k ? rope_batched(args.k).sizes[1] : 0);
  if (q.sizes[0] > INT32_MAX || q.sizes[2] > INT32_MAX / 2 || heads * q.sizes[3] > INT32_MAX / 64) {
    throw Error(ErrorCode::unsupported, {.where = where, .what = "a sequence or a token is too long for a GPU"});
  }
  RopeJob job{};
  job.blocks = q.sizes[0];
  job.seq = static_cast<int>(q.sizes[2]);
  job.q_heads = static_cast<int>(q.sizes[1]);
  job.heads = static_cast<int>(heads);
  job.width = static_cast<int>(q.sizes[3]);
  job.rotary = static_cast<int>(rotary);
  job.positions = args.positions ? args.positions.data : nullptr;
  job.position_type = args.positions.dtype;
  job.by_batch = angles.by_batch;
  job.interleaved = args.pairing == ops::RopePairing::interleaved;
  job.tokens_inside = q.strides[1] > q.strides[2];
  job.factor = static_cast<float>(rope_attention_factor(args.scaling));
  job.direction = direction;
  if (args.cos) {
    job.cos = args.cos.data;
    job.sin = args.sin.data;
    job.cos_stride = args.cos.strides[0];
    job.sin_stride = args.sin.strides[0];
    job.table_rows = args.cos.sizes[0];
    job.table_type = args.cos.dtype;
    job.table_step = job.interleaved && args.cos.sizes[1] == rotary ? 2 : 1;
  }
  // The frequencies travel with the launch: nothing to copy, nothing to keep alive.
  std::vector<float> frequencies;
  if (!args.cos) {
    frequencies.resize(static_cast<size_t>(half));
    rope_inverse_frequencies(args.scaling, args.theta, rotary, frequencies.data());
  }
  const bool narrow = strides_fit(args.q) && strides_fit(args.k) && strides_fit(args.q_out) && strides_fit(args.k_out);
  for (job.first_pair = 0; job.first_pair < half; job.first_pair = job.end_pair) {
    job.end_pair = std::min(static_cast<int>(half), job.first_pair + kMaxFrequencies);
    job.copy_rest = job.first_pair == 0 && rotary < job.width;
    if (!args.cos) std::copy(frequencies.begin() + job.first_pair, frequencies.begin() + job.end_pair, job.frequencies);
    dispatch(where, args.q.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const bool vectors = half % kLanes<T> == 0 && (job.width - rotary) % kLanes<T> == 0 &&
                           rows_aligned(args.q, args.q_out, args.k, args.k_out);
      if (vectors && narrow) {
        rope_launch<T, kLanes<T>, int>(ctx, args, job);
      } else if (vectors) {
        rope_launch<T, kLanes<T>, int64_t>(ctx, args, job);
      } else {
        rope_launch<T, 1, int64_t>(ctx, args, job);
      }
    });
    check_launch(where);
  }
}

}  // namespace

void rope_forward(const Context& ctx, const ops::Rope& args) { rope(ctx, args, 1.0f, "rope_forward"); }

void rope_backward(const Context& ctx, const ops::Rope& args) { rope(ctx, args, -1.0f, "rope_backward"); }

}  // namespace tigon::cuda
