// rope: a small f32 table of cos and sin, one row per distinct angle, then one pass over q and k in which each row of
// the table serves all heads. The table is the caller's own where its layout allows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rope.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
#include "backend/cpu/simd-inl.hpp"
#include "backend/cpu/sincos-inl.hpp"
#include "backend/rope_frequencies.hpp"
#include "backend/rope_layout.hpp"
// clang-format on

#include <cmath>
#include <cstring>

#ifndef TIGON_CPU_ROPE_TABLE_
#define TIGON_CPU_ROPE_TABLE_
namespace tigon::cpu {

// cos and sin in f32. Half pairing: [rows, rotary/2]. Interleaved: [rows, rotary], each cos twice, each sin twice with
// its sign in the rotation, so that a vector of pairs needs no shuffling of the table.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t cos_stride = 0;
  int64_t sin_stride = 0;
};

// One tensor to rotate, as [batch, heads, seq, D].
struct RopeTask {
  Tensor x;
  Tensor y;
  int64_t rotary = 0;
  bool interleaved = false;
  bool stream_out = false;
  float direction = 1.0f;  // −1 in backward
};

}  // namespace tigon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// Spreads n values over 2n places: v0 v0 v1 v1 …, the even ones times `even_sign`. Backwards, since it works in place.
void spread_pairs(float* values, int64_t n, float even_sign) {
  for (int64_t d = n - 1; d >= 0; --d) {
    const float value = values[d];
    values[2 * d] = value * even_sign;
    values[2 * d + 1] = value;
  }
}

// A row of the table for one position. `frequencies` may be read up to a whole vector past `half`.
void RopeAnglesRow(const float* frequencies, int64_t half, float position, float factor, bool interleaved, float* cos,
                   float* sin) {
  const D64 d64;
  const hn::Rebind<float, D64> d32;
  const auto step = static_cast<int64_t>(hn::Lanes(d64));
  const auto scale = hn::Set(d32, factor);
  for (int64_t j = 0; j < half; j += step) {
    const auto angle = hn::Mul(hn::LoadU(d32, frequencies + j), hn::Set(d32, position));
    const int64_t count = std::min(step, half - j);
    HWY_ALIGN float cos_lanes[HWY_MAX_BYTES / sizeof(float)];
    HWY_ALIGN float sin_lanes[HWY_MAX_BYTES / sizeof(float)];
    if (hn::AllTrue(d32, hn::Lt(hn::Abs(angle), hn::Set(d32, kLargestAngle)))) {
      const SinCos both = sincos(hn::PromoteTo(d64, angle));
      hn::Store(hn::Mul(hn::DemoteTo(d32, both.cos), scale), d32, cos_lanes);
      hn::Store(hn::Mul(hn::DemoteTo(d32, both.sin), scale), d32, sin_lanes);
    } else {  // no text is that long, but an i64 position may hold anything
      for (int64_t i = 0; i < count; ++i) {
        const auto wide = static_cast<double>(frequencies[j + i] * position);
        cos_lanes[i] = static_cast<float>(std::cos(wide)) * factor;
        sin_lanes[i] = static_cast<float>(std::sin(wide)) * factor;
      }
    }
    const auto bytes = static_cast<size_t>(count) * sizeof(float);
    std::memcpy(cos + j, cos_lanes, bytes);
    std::memcpy(sin + j, sin_lanes, bytes);
  }
  if (interleaved) {
    spread_pairs(cos, half, 1.0f);
    spread_pairs(sin, half, -1.0f);
  }
}

// A row of the table from a row of the caller's. `twice` says that there each value stands twice side by side.
void RopeTableRow(const Tensor& table, int64_t i, int64_t half, bool twice, bool interleaved, float even_sign,
                  float* out) {
  with_type(table.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* in = table.as<T>() + i * table.strides[0];
    for (int64_t d = 0; d < half; ++d) out[d] = static_cast<float>(in[twice ? 2 * d : d]);
  });
  if (interleaved) spread_pairs(out, half, even_sign);
}

TIGON_SIMD V swap_neighbours(V v) {
#if HWY_TARGET == HWY_SCALAR
  return v;  // never used: one lane holds no pair, rotate_pairs takes its plain loop
#else
  return hn::Reverse2(D(), v);
#endif
}

template <bool kStream, class T>
TIGON_SIMD void rotate_halves(const T* x, T* y, const float* cos, const float* sin, int64_t half, V direction) {
  for_row(half, [&](int64_t j, auto part) HWY_ATTR {
    const V c = load(cos + j, part);
    const V s = hn::Mul(load(sin + j, part), direction);
    const V a = load(x + j, part);
    const V b = load(x + half + j, part);
    put<kStream>(hn::NegMulAdd(b, s, hn::Mul(a, c)), y + j, part);
    put<kStream>(hn::MulAdd(a, s, hn::Mul(b, c)), y + half + j, part);
  });
}

template <bool kStream, class T>
TIGON_SIMD void rotate_pairs(const T* x, T* y, const float* cos, const float* sin, int64_t rotary, V direction) {
  if (lanes() < 2) {
    const float sign = hn::GetLane(direction);
    for (int64_t j = 0; j < rotary; j += 2) {
      const auto a = static_cast<float>(x[j]), b = static_cast<float>(x[j + 1]);
      y[j] = T(a * cos[j] + b * sin[j] * sign);
      y[j + 1] = T(b * cos[j + 1] + a * sin[j + 1] * sign);
    }
    return;
  }
  for_row(rotary, [&](int64_t j, auto part) HWY_ATTR {
    const V v = load(x + j, part);
    const V s = hn::Mul(load(sin + j, part), direction);
    put<kStream>(hn::MulAdd(swap_neighbours(v), s, hn::Mul(v, load(cos + j, part))), y + j, part);
  });
}

template <class T, bool kStream>
void rope_rows(const RopeTask& task, const RopeTable& table, const RopeAngles& angles, int64_t batch, int64_t begin,
               int64_t end) {
  const Tensor &x = task.x, &y = task.y;
  const int64_t rest = x.sizes[3] - task.rotary;
  const V direction = set(task.direction);
  const auto rotate = [&](int64_t head, int64_t token, int64_t row) HWY_ATTR {
    const T* from = x.as<T>() + batch * x.strides[0] + head * x.strides[1] + token * x.strides[2];
    T* to = y.as<T>() + batch * y.strides[0] + head * y.strides[1] + token * y.strides[2];
    const float* cos = table.cos + row * table.cos_stride;
    const float* sin = table.sin + row * table.sin_stride;
    if (task.interleaved) {
      rotate_pairs<kStream>(from, to, cos, sin, task.rotary, direction);
    } else {
      rotate_halves<kStream>(from, to, cos, sin, task.rotary / 2, direction);
    }
    if (rest > 0 && from != to)
      std::memcpy(to + task.rotary, from + task.rotary, static_cast<size_t>(rest) * sizeof(T));
  };
  // Memory order: heads of a token side by side, or tokens of a head.
  if (x.strides[1] <= x.strides[2]) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t row = angles.row(batch, token);
      for (int64_t head = 0; head < x.sizes[1]; ++head) rotate(head, token, row);
    }
  } else {
    for (int64_t head = 0; head < x.sizes[1]; ++head) {
      for (int64_t token = begin; token < end; ++token) rotate(head, token, angles.row(batch, token));
    }
  }
  if (kStream) hwy::FlushStream();
}

void RopeRows(const RopeTask& task, const RopeTable& table, const RopeAngles& angles, int64_t batch, int64_t begin,
              int64_t end) {
  with_type(task.x.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = task.stream_out ? rope_rows<T, true> : rope_rows<T, false>;
    run(task, table, angles, batch, begin, end);
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(RopeAnglesRow);
HWY_EXPORT(RopeTableRow);
HWY_EXPORT(RopeRows);

namespace {

constexpr int64_t kFrequencyPadding = 32;  // f64 lanes of the longest vectors, 2048 bits

// Whether the caller's table already is what RopeTable wants.
bool usable_as_is(const ops::Rope& args) {
  return args.cos && args.cos.dtype == DType::f32 && args.pairing == ops::RopePairing::half;
}

// Rows of the table to make: one per distinct angle, or one per row of the caller's.
int64_t rows_to_make(const ops::Rope& args, const RopeAngles& angles) {
  if (usable_as_is(args)) return 0;
  return args.cos ? args.cos.sizes[0] : angles.entries;
}

// Like rows.hpp's streams, for four dimensions and for vectors that start in the middle of a head.
bool streams(const RopeTask& task) {
  const int64_t unit = size_of(task.y.dtype);
  const int64_t second = task.interleaved ? 0 : task.rotary / 2;
  bool aligned = reinterpret_cast<uintptr_t>(task.y.data) % 64 == 0 && second * unit % 64 == 0;
  for (int d = 0; d < 3; ++d) aligned = aligned && task.y.strides[d] * unit % 64 == 0;
  return aligned && task.y.data != task.x.data && larger_than_cache(task.y.bytes());
}

void rope(const Context& ctx, const ops::Rope& args, float direction) {
  const RopeAngles angles(args);
  const int64_t rotary = rope_rotary_dim(args), half = rotary / 2;
  const bool interleaved = args.pairing == ops::RopePairing::interleaved;
  const int64_t rows = rows_to_make(args, angles), columns = interleaved ? rotary : half;
  const Buffer made = ctx.scratch("rope_table", 2 * rows * columns * 4);
  const Buffer frequencies = ctx.scratch("rope_frequencies", args.cos ? 0 : (half + kFrequencyPadding) * 4);
  if (ctx.measuring() || args.q.elements() + args.k.elements() == 0 || rotary == 0) return;

  RopeTable table{
      .cos = made.as<float>(), .sin = made.as<float>() + rows * columns, .cos_stride = columns, .sin_stride = columns};
  if (usable_as_is(args)) {
    table = {.cos = args.cos.as<float>(),
             .sin = args.sin.as<float>(),
             .cos_stride = args.cos.strides[0],
             .sin_stride = args.sin.strides[0]};
  } else if (args.cos) {
    const auto run = HWY_DYNAMIC_DISPATCH(RopeTableRow);
    const bool twice = interleaved && args.cos.sizes[1] == rotary;
    parallel_tasks(ctx, 2, [&](int64_t task) {
      float* out = made.as<float>() + task * rows * columns;
      for (int64_t i = 0; i < rows; ++i) {
        run(task == 0 ? args.cos : args.sin, i, half, twice, interleaved, task == 0 ? 1.0f : -1.0f, out + i * columns);
      }
    });
  } else {
    std::fill_n(frequencies.as<float>(), half + kFrequencyPadding, 0.0f);
    rope_inverse_frequencies(args.scaling, args.theta, rotary, frequencies.as<float>());
    const auto factor = static_cast<float>(rope_attention_factor(args.scaling));
    const auto run = HWY_DYNAMIC_DISPATCH(RopeAnglesRow);
    const Blocks blocks(rows, 64, 64);
    parallel_tasks(ctx, blocks.count, [&](int64_t block) {
      for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
        run(frequencies.as<float>(), half, static_cast<float>(angles.position(i)), factor, interleaved,
            made.as<float>() + i * columns, made.as<float>() + (rows + i) * columns);
      }
    });
  }

  const auto task_for = [&](const Tensor& x, const Tensor& y) {
    RopeTask task{.x = rope_batched(x),
                  .y = rope_batched(y),
                  .rotary = rotary,
                  .interleaved = interleaved,
                  .direction = direction};
    task.stream_out = streams(task);
    return task;
  };
  const RopeTask q = task_for(args.q, args.q_out);
  const RopeTask k = args.k ? task_for(args.k, args.k_out) : RopeTask{};
  const int64_t batches = q.x.sizes[0];
  const int64_t token_bytes = (q.x.sizes[1] + (args.k ? k.x.sizes[1] : 0)) * q.x.sizes[3] * size_of(args.q.dtype);
  const Blocks blocks(angles.seq, std::max<int64_t>(1, (int64_t{256} << 10) / std::max<int64_t>(1, token_bytes)), 1024);
  const auto run = HWY_DYNAMIC_DISPATCH(RopeRows);
  parallel_tasks(ctx, batches * blocks.count, [&](int64_t task) {
    const int64_t batch = task / blocks.count, block = task % blocks.count;
    run(q, table, angles, batch, blocks.begin(block), blocks.end(block));
    if (args.k) run(k, table, angles, batch, blocks.begin(block), blocks.end(block));
  });
}

}  // namespace

void rope_forward(const Context& ctx, const ops::Rope& args) { rope(ctx, args, 1.0f); }

void rope_backward(const Context& ctx, const ops::Rope& args) { rope(ctx, args, -1.0f); }

}  // namespace tigon::cpu
#endif
