// rope: one launch for q and k. A thread owns some pairs of one token: it forms their cos and sin once and turns them
// in several heads.
#include <algorithm>
#include <vector>

#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"
#include "backend/rope_frequencies.hpp"
#include "backend/rope_layout.hpp"

namespace tigon::cuda {

namespace {

constexpr int kHeads = 4;             // heads per thread: enough loads in flight, and cos and sin serve them all
constexpr int kMaxFrequencies = 512;  // pairs per launch; a larger rotary_dim takes several

// One tensor to turn, as [batch, heads, seq, D].
template <class T>
struct RopeHeads {
  const T* x = nullptr;
  T* y = nullptr;
  int64_t x_strides[3] = {};
  int64_t y_strides[3] = {};
};

template <class T>
struct RopeBoth {
  RopeHeads<T> of[2];  // q and k
};

struct RopeJob {
  int64_t batches, seq, heads, q_heads;  // heads of q and k together
  int64_t width, rotary;
  int64_t first_pair, end_pair;  // of this launch
  int64_t groups;                // of heads: head = group + i·groups
  const void* positions;
  const void* cos;  // null: from frequencies
  const void* sin;
  int64_t cos_stride, sin_stride, table_rows;
  int table_step;  // 2 where each value stands twice side by side
  DType position_type, table_type;
  bool by_batch, interleaved;
  bool tokens_inside;  // which of tokens and head groups neighbouring threads take
  bool copy_rest;
  float factor;     // of cos and sin
  float direction;  // −1 in backward
  float frequencies[kMaxFrequencies];
};

__device__ __forceinline__ float table_value(const void* table, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::bf16: return load_one(static_cast<const bf16*>(table) + index);
    case DType::f16: return load_one(static_cast<const f16*>(table) + index);
    default: return static_cast<const float*>(table)[index];
  }
}

// cos and sin of one pair.
__device__ __forceinline__ void rope_angle(const RopeJob& job, int64_t position, int64_t pair, float& cos, float& sin) {
  if (job.cos == nullptr) {
    sincosf(__fmul_rn(static_cast<float>(position), job.frequencies[pair - job.first_pair]), &sin, &cos);
    cos *= job.factor;
    sin *= job.factor;
  } else if (position >= 0 && position < job.table_rows) {
    cos = table_value(job.cos, job.table_type, position * job.cos_stride + pair * job.table_step);
    sin = table_value(job.sin, job.table_type, position * job.sin_stride + pair * job.table_step);
  } else {  // no such row: the host could not look
    cos = sin = __int_as_float(0x7fc00000);
  }
  sin *= job.direction;
}

// W pairs are 2·W elements: W of each half of the head, or 2·W side by side.
template <class T, int W>
__global__ void __launch_bounds__(256)
    rope_kernel(const __grid_constant__ RopeJob job, const __grid_constant__ RopeBoth<T> both) {
  const int64_t items = job.batches * job.seq * job.groups, item_step = int64_t{gridDim.x} * blockDim.y;
  const int64_t half = job.rotary / 2;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; item < items; item += item_step) {
    const int64_t inner = job.tokens_inside ? job.seq : job.groups, outer = item / inner;
    const int64_t first = item - outer * inner;
    const int64_t second = job.tokens_inside ? outer % job.groups : outer % job.seq;
    const int64_t batch = job.tokens_inside ? outer / job.groups : outer / job.seq;
    const int64_t token = job.tokens_inside ? first : second, group = job.tokens_inside ? second : first;
    const int64_t entry = job.by_batch ? batch * job.seq + token : token;
    int64_t position = entry;
    if (job.positions != nullptr) {
      position = job.position_type == DType::i32 ? static_cast<const int32_t*>(job.positions)[entry]
                                                 : static_cast<const int64_t*>(job.positions)[entry];
    }
    const auto from = [&](int64_t head) {
      const RopeHeads<T>& t = both.of[head < job.q_heads ? 0 : 1];
      const int64_t h = head < job.q_heads ? head : head - job.q_heads;
      return t.x + batch * t.x_strides[0] + h * t.x_strides[1] + token * t.x_strides[2];
    };
    const auto to = [&](int64_t head) {
      const RopeHeads<T>& t = both.of[head < job.q_heads ? 0 : 1];
      const int64_t h = head < job.q_heads ? head : head - job.q_heads;
      return t.y + batch * t.y_strides[0] + h * t.y_strides[1] + token * t.y_strides[2];
    };

    for (int64_t pair = job.first_pair + int64_t{threadIdx.x} * W; pair < job.end_pair;
         pair += int64_t{blockDim.x} * W) {
      const int64_t low = job.interleaved ? 2 * pair : pair, high = job.interleaved ? low + W : pair + half;
      Raw<T, W> raw[kHeads][2];
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        const int64_t head = group + i * job.groups;
        if (head >= job.heads) continue;
        raw[i][0] = load_raw<W>(from(head) + low);
        raw[i][1] = load_raw<W>(from(head) + high);
      }
      float cos[W], sin[W];
#pragma unroll
      for (int i = 0; i < W; ++i) rope_angle(job, position, pair + i, cos[i], sin[i]);
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        const int64_t head = group + i * job.groups;
        if (head >= job.heads) continue;
        float a[W], b[W];
        unpack<T, W>(raw[i][0], a);
        unpack<T, W>(raw[i][1], b);
        if (job.interleaved && W > 1) {
#pragma unroll
          for (int p = 0; p < W / 2; ++p) {
            const float a0 = a[2 * p], a1 = a[2 * p + 1], b0 = b[2 * p], b1 = b[2 * p + 1];
            a[2 * p] = a0 * cos[p] - a1 * sin[p];
            a[2 * p + 1] = a1 * cos[p] + a0 * sin[p];
            b[2 * p] = b0 * cos[W / 2 + p] - b1 * sin[W / 2 + p];
            b[2 * p + 1] = b1 * cos[W / 2 + p] + b0 * sin[W / 2 + p];
          }
        } else {
#pragma unroll
          for (int p = 0; p < W; ++p) {
            const float x = a[p], y = b[p];
            a[p] = x * cos[p] - y * sin[p];
            b[p] = y * cos[p] + x * sin[p];
          }
        }
        store<W>(to(head) + low, a);
        store<W>(to(head) + high, b);
      }
    }
    if (!job.copy_rest) continue;
    for (int i = 0; i < kHeads; ++i) {
      const int64_t head = group + i * job.groups;
      if (head >= job.heads || from(head) == to(head)) continue;
      for (int64_t j = job.rotary + int64_t{threadIdx.x} * W; j < job.width; j += int64_t{blockDim.x} * W) {
        store_raw<W>(to(head) + j, load_raw<W>(from(head) + j));
      }
    }
  }
}

template <class T>
RopeHeads<T> rope_heads(const Tensor& x, const Tensor& y) {
  RopeHeads<T> heads;
  if (!x.present()) return heads;
  const Tensor from = rope_batched(x), to = rope_batched(y);
  heads.x = from.as<T>();
  heads.y = to.as<T>();
  for (int d = 0; d < 3; ++d) heads.x_strides[d] = from.strides[d], heads.y_strides[d] = to.strides[d];
  return heads;
}

template <class T, int W>
void rope_launch(const Context& ctx, const ops::Rope& args, const RopeJob& job) {
  const int64_t chunks = divide_up(job.end_pair - job.first_pair, W);
  RowGrid shape = row_grid(job.batches * job.seq * job.groups, chunks);
  shape.grid.y = 1;
  const RopeBoth<T> both{{rope_heads<T>(args.q, args.q_out), rope_heads<T>(args.k, args.k_out)}};
  rope_kernel<T, W><<<shape.grid, shape.block, 0, stream_of(ctx)>>>(job, both);
}

void rope(const Context& ctx, const ops::Rope& args, float direction, const char* where) {
  const int64_t rotary = rope_rotary_dim(args), half = rotary / 2;
  const int64_t elements = args.q.elements() + (args.k ? args.k.elements() : 0);
  if (ctx.measuring() || elements == 0 || rotary == 0) return;
  const DeviceGuard guard(ctx);
  const RopeAngles angles(args);
  const Tensor q = rope_batched(args.q);

  RopeJob job{};
  job.batches = q.sizes[0];
  job.seq = q.sizes[2];
  job.q_heads = q.sizes[1];
  job.heads = job.q_heads + (args.k ? rope_batched(args.k).sizes[1] : 0);
  job.width = q.sizes[3];
  job.rotary = rotary;
  job.groups = divide_up(job.heads, kHeads);
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
  for (job.first_pair = 0; job.first_pair < half; job.first_pair = job.end_pair) {
    job.end_pair = std::min(half, job.first_pair + kMaxFrequencies);
    job.copy_rest = job.first_pair == 0 && rotary < job.width;
    if (!args.cos) std::copy(frequencies.begin() + job.first_pair, frequencies.begin() + job.end_pair, job.frequencies);
    dispatch(where, args.q.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const bool vectors = half % kLanes<T> == 0 && (job.width - rotary) % kLanes<T> == 0 &&
                           rows_aligned(args.q, args.q_out, args.k, args.k_out);
      if (vectors) {
        rope_launch<T, kLanes<T>>(ctx, args, job);
      } else {
        rope_launch<T, 1>(ctx, args, job);
      }
    });
    check_launch(where);
  }
}

}  // namespace

void rope_forward(const Context& ctx, const ops::Rope& args) { rope(ctx, args, 1.0f, "rope_forward"); }

void rope_backward(const Context& ctx, const ops::Rope& args) { rope(ctx, args, -1.0f, "rope_backward"); }

}  // namespace tigon::cuda
