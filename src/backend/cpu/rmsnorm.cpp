// rmsnorm, with or without a residual added first: one read and one write of each row. The second pass over a row finds
// it in cache and asks for the next one meanwhile, so that memory never waits for arithmetic. Backward also sums
// dweight: each block of rows into an f32 row of its own that stays in cache, then the blocks in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rmsnorm.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/rmsnorm.hpp"
#include "backend/cpu/rows.hpp"
#include "backend/cpu/simd-inl.hpp"
// clang-format on

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

template <class T, bool kResidual, bool kStreamY, bool kStreamSum>
void rmsnorm_forward_rows(const ops::RmsnormForward& args, const Tensor& residual, const Tensor& residual_out,
                          const float* gain, int64_t begin, int64_t end) {
  const int64_t hidden = args.x.sizes[1];
  const bool round_early = args.casting == ops::NormCasting::llama;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t next = std::min(i + 1, end - 1);
    const T* x = row<T>(args.x, i);
    const T* next_x = row<T>(args.x, next);
    const T* r = kResidual ? row<T>(residual, i) : nullptr;
    const T* next_r = kResidual ? row<T>(residual, next) : nullptr;
    T* sum = kResidual ? row<T>(residual_out, i) : nullptr;
    T* y = row<T>(args.y, i);
    const auto value = [&](int64_t j, auto part) HWY_ATTR {
      const V v = load(x + j, part);
      if constexpr (kResidual) return rounded<T>(hn::Add(v, load(r + j, part)));
      return v;
    };
    const float squares = sum_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
      const V v = value(j, part);
      return hn::Mul(v, v);
    });
    const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(hidden) + static_cast<float>(args.eps));
    if (args.rstd) args.rstd.as<float>()[i] = rstd;
    const V scale = set(rstd);
    for_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
      prefetch(next_x + j);
      if constexpr (kResidual) prefetch(next_r + j);
      const V v = value(j, part);  // again rather than kept: y and the sum may both go past the cache, and may be x
      if constexpr (kResidual) put<kStreamSum>(v, sum + j, part);
      V normal = hn::Mul(v, scale);
      if (round_early) normal = rounded<T>(normal);
      put<kStreamY>(hn::Mul(normal, load(gain + j, part)), y + j, part);
    });
  }
  if (kStreamY || kStreamSum) hwy::FlushStream();
}

void RmsnormForwardRows(const ops::RmsnormForward& args, const Tensor& residual, const Tensor& residual_out,
                        const float* gain, bool stream_y, bool stream_sum, int64_t begin, int64_t end) {
  with_type(args.x.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run =
        !residual
            ? (stream_y ? rmsnorm_forward_rows<T, false, true, false> : rmsnorm_forward_rows<T, false, false, false>)
        : stream_y
            ? (stream_sum ? rmsnorm_forward_rows<T, true, true, true> : rmsnorm_forward_rows<T, true, true, false>)
            : (stream_sum ? rmsnorm_forward_rows<T, true, false, true> : rmsnorm_forward_rows<T, true, false, false>);
    run(args, residual, residual_out, gain, begin, end);
  });
}

template <class T, bool kAdd, bool kStream>
void rmsnorm_backward_rows(const ops::RmsnormBackward& args, const Tensor& dresidual, const float* gain, float* dweight,
                           int64_t begin, int64_t end) {
  const int64_t hidden = args.x.sizes[1];
  const bool round_early = args.casting == ops::NormCasting::llama;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t next = std::min(i + 1, end - 1);
    const T* x = row<T>(args.x, i);
    const T* dy = row<T>(args.dy, i);
    const T* next_x = row<T>(args.x, next);
    const T* next_dy = row<T>(args.dy, next);
    const float rstd = args.rstd.as<float>()[i];
    const V scale = set(rstd);
    const float dot = sum_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
      prefetch(next_dy + j);  // one input of the next row in either pass keeps memory evenly busy
      const V xv = load(x + j, part);
      const V dyv = load(dy + j, part);
      if (dweight != nullptr) {
        V normal = hn::Mul(xv, scale);
        if (round_early) normal = rounded<T>(normal);
        store(hn::MulAdd(dyv, normal, load(dweight + j, part)), dweight + j, part);
      }
      return hn::Mul(hn::Mul(dyv, load(gain + j, part)), xv);
    });
    if (!args.dx) continue;
    T* dx = row<T>(args.dx, i);
    const T* dr = kAdd ? row<T>(dresidual, i) : nullptr;
    // Not rstd³ first: that leaves f32 for rows of 1e13.
    const V slope = set(-rstd * (rstd * (dot / static_cast<float>(hidden))) * rstd);
    for_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
      prefetch(next_x + j);
      const V m = hn::Mul(load(dy + j, part), load(gain + j, part));
      V gradient = hn::Mul(slope, load(x + j, part));
      if constexpr (kAdd) gradient = hn::Add(gradient, load(dr + j, part));
      put<kStream>(hn::MulAdd(m, scale, gradient), dx + j, part);
    });
  }
  if (kStream) hwy::FlushStream();
}

void RmsnormBackwardRows(const ops::RmsnormBackward& args, const Tensor& dresidual, const float* gain, float* dweight,
                         bool stream_out, int64_t begin, int64_t end) {
  with_type(args.x.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run =
        dresidual ? (stream_out ? rmsnorm_backward_rows<T, true, true> : rmsnorm_backward_rows<T, true, false>)
                  : (stream_out ? rmsnorm_backward_rows<T, false, true> : rmsnorm_backward_rows<T, false, false>);
    run(args, dresidual, gain, dweight, begin, end);
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(RmsnormForwardRows);
HWY_EXPORT(RmsnormBackwardRows);

void rmsnorm_forward_of_sum(const Context& ctx, const ops::RmsnormForward& args, const Tensor& residual,
                            const Tensor& residual_out) {
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const Buffer gain = ctx.scratch("rmsnorm_gain", hidden * 4);
  if (ctx.measuring()) return;
  widen_row(args.weight, static_cast<float>(args.offset), 1.0f, hidden, gain.as<float>());
  const bool stream_y = streams_apart_from(args.y, {args.x, residual});
  const bool stream_sum = residual && streams_apart_from(residual_out, {args.x, residual});
  const Blocks blocks = row_blocks(tokens, hidden * size_of(args.x.dtype));
  const auto run = HWY_DYNAMIC_DISPATCH(RmsnormForwardRows);
  parallel_tasks(ctx, blocks.count, [&](int64_t block) {
    run(args, residual, residual_out, gain.as<float>(), stream_y, stream_sum, blocks.begin(block), blocks.end(block));
  });
}

void rmsnorm_backward_onto(const Context& ctx, const ops::RmsnormBackward& args, const Tensor& dresidual) {
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const Blocks blocks = row_blocks(tokens, hidden * size_of(args.x.dtype), 64);
  const Buffer gain = ctx.scratch("rmsnorm_gain", hidden * 4);
  const Buffer partials = ctx.scratch("rmsnorm_dweight", args.dweight ? blocks.count * hidden * 4 : 0);
  if (ctx.measuring()) return;
  widen_row(args.weight, static_cast<float>(args.offset), 1.0f, hidden, gain.as<float>());
  const bool stream_out = args.dx && streams_apart_from(args.dx, {args.x, args.dy, dresidual});
  const auto run = HWY_DYNAMIC_DISPATCH(RmsnormBackwardRows);
  parallel_tasks(ctx, blocks.count, [&](int64_t block) {
    float* dweight = nullptr;
    if (args.dweight) {
      dweight = partials.as<float>() + block * hidden;
      std::fill_n(dweight, hidden, 0.0f);
    }
    run(args, dresidual, gain.as<float>(), dweight, stream_out, blocks.begin(block), blocks.end(block));
  });
  if (args.dweight)
    reduce_partials(ctx, partials.as<float>(), blocks.count, hidden, args.dweight, args.accumulate_dweight);
}

void rmsnorm_forward(const Context& ctx, const ops::RmsnormForward& args) { rmsnorm_forward_of_sum(ctx, args, {}, {}); }

void rmsnorm_backward(const Context& ctx, const ops::RmsnormBackward& args) { rmsnorm_backward_onto(ctx, args, {}); }

}  // namespace tigon::cpu
#endif
