// rmsnorm: one read and one write of each row. Backward also sums dweight: each block of rows into an f32 row of its
// own that stays in cache, then the blocks in order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rmsnorm.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/rows.hpp"
#include "backend/cpu/simd-inl.hpp"
// clang-format on

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

template <class T, bool kStream>
void rmsnorm_forward_rows(const ops::RmsnormForward& args, const float* gain, int64_t begin, int64_t end) {
  const int64_t hidden = args.x.sizes[1];
  const bool round_early = args.casting == ops::NormCasting::llama;
  for (int64_t i = begin; i < end; ++i) {
    const T* x = row<T>(args.x, i);
    T* y = row<T>(args.y, i);
    const float squares = sum_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
      const V v = load(x + j, part);
      return hn::Mul(v, v);
    });
    const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(hidden) + static_cast<float>(args.eps));
    if (args.rstd) args.rstd.as<float>()[i] = rstd;
    const V scale = set(rstd);
    for_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
      V v = hn::Mul(load(x + j, part), scale);
      if (round_early) v = rounded<T>(v);
      put<kStream>(hn::Mul(v, load(gain + j, part)), y + j, part);
    });
  }
  if (kStream) hwy::FlushStream();
}

void RmsnormForwardRows(const ops::RmsnormForward& args, const float* gain, bool stream_out, int64_t begin,
                        int64_t end) {
  with_type(args.x.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    if (stream_out) {
      rmsnorm_forward_rows<T, true>(args, gain, begin, end);
    } else {
      rmsnorm_forward_rows<T, false>(args, gain, begin, end);
    }
  });
}

template <class T, bool kStream>
void rmsnorm_backward_rows(const ops::RmsnormBackward& args, const float* gain, float* dweight, int64_t begin,
                           int64_t end) {
  const int64_t hidden = args.x.sizes[1];
  const bool round_early = args.casting == ops::NormCasting::llama;
  for (int64_t i = begin; i < end; ++i) {
    const T* x = row<T>(args.x, i);
    const T* dy = row<T>(args.dy, i);
    const float rstd = args.rstd.as<float>()[i];
    const V scale = set(rstd);
    const float dot = sum_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
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
    const V slope = set(-rstd * rstd * rstd * (dot / static_cast<float>(hidden)));
    for_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
      const V m = hn::Mul(load(dy + j, part), load(gain + j, part));
      put<kStream>(hn::MulAdd(m, scale, hn::Mul(slope, load(x + j, part))), dx + j, part);
    });
  }
  if (kStream) hwy::FlushStream();
}

void RmsnormBackwardRows(const ops::RmsnormBackward& args, const float* gain, float* dweight, bool stream_out,
                         int64_t begin, int64_t end) {
  with_type(args.x.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    if (stream_out) {
      rmsnorm_backward_rows<T, true>(args, gain, dweight, begin, end);
    } else {
      rmsnorm_backward_rows<T, false>(args, gain, dweight, begin, end);
    }
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(RmsnormForwardRows);
HWY_EXPORT(RmsnormBackwardRows);

void rmsnorm_forward(const Context& ctx, const ops::RmsnormForward& args) {
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const Buffer gain = ctx.scratch("rmsnorm_gain", hidden * 4);
  if (ctx.measuring()) return;
  widen_row(args.weight, static_cast<float>(args.offset), 1.0f, hidden, gain.as<float>());
  const bool stream_out = streams(args.y) && args.y.data != args.x.data;
  const Blocks blocks = row_blocks(tokens, hidden * size_of(args.x.dtype));
  const auto run = HWY_DYNAMIC_DISPATCH(RmsnormForwardRows);
  parallel_tasks(ctx, blocks.count, [&](int64_t block) {
    run(args, gain.as<float>(), stream_out, blocks.begin(block), blocks.end(block));
  });
}

void rmsnorm_backward(const Context& ctx, const ops::RmsnormBackward& args) {
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const Blocks blocks = row_blocks(tokens, hidden * size_of(args.x.dtype), 64);
  const Buffer gain = ctx.scratch("rmsnorm_gain", hidden * 4);
  const Buffer partials = ctx.scratch("rmsnorm_dweight", args.dweight ? blocks.count * hidden * 4 : 0);
  if (ctx.measuring()) return;
  widen_row(args.weight, static_cast<float>(args.offset), 1.0f, hidden, gain.as<float>());
  const bool stream_out = args.dx && streams(args.dx) && args.dx.data != args.x.data && args.dx.data != args.dy.data;
  const auto run = HWY_DYNAMIC_DISPATCH(RmsnormBackwardRows);
  parallel_tasks(ctx, blocks.count, [&](int64_t block) {
    float* dweight = nullptr;
    if (args.dweight) {
      dweight = partials.as<float>() + block * hidden;
      std::fill_n(dweight, hidden, 0.0f);
    }
    run(args, gain.as<float>(), dweight, stream_out, blocks.begin(block), blocks.end(block));
  });
  if (args.dweight)
    reduce_partials(ctx, partials.as<float>(), blocks.count, hidden, args.dweight, args.accumulate_dweight);
}

}  // namespace tigon::cpu
#endif
