// softmax: a row is read once from memory for its maximum and sum, and once from cache when it is written.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/softmax.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/rows.hpp"
#include "backend/cpu/softmax-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

template <class T, bool kStream>
void softmax_forward_rows(const ops::SoftmaxForward& args, int64_t begin, int64_t end) {
  const int64_t columns = args.x.sizes[1];
  const V scale = set(static_cast<float>(args.scale));
  for (int64_t i = begin; i < end; ++i) {
    const T* x = row<T>(args.x, i);
    T* y = row<T>(args.y, i);
    const auto scaled = [&](int64_t j, auto part) HWY_ATTR { return hn::Mul(scale, load(x + j, part)); };
    const RowSoftmax soft = softmax_row(columns, scaled, [](V v) HWY_ATTR { return v; });
    const V shift = set(soft.shift), inverse = set(static_cast<float>(1.0 / soft.sum));
    for_row(columns, [&](int64_t j, auto part) HWY_ATTR {
      put<kStream>(hn::Mul(exp_nonpositive(hn::Sub(scaled(j, part), shift)), inverse), y + j, part);
    });
  }
  if (kStream) hwy::FlushStream();
}

void SoftmaxForwardRows(const ops::SoftmaxForward& args, bool stream_out, int64_t begin, int64_t end) {
  with_type(args.x.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    if (stream_out) {
      softmax_forward_rows<T, true>(args, begin, end);
    } else {
      softmax_forward_rows<T, false>(args, begin, end);
    }
  });
}

template <class T, bool kStream>
void softmax_backward_rows(const ops::SoftmaxBackward& args, int64_t begin, int64_t end) {
  const int64_t columns = args.y.sizes[1];
  const V scale = set(static_cast<float>(args.scale));
  for (int64_t i = begin; i < end; ++i) {
    const T* y = row<T>(args.y, i);
    const T* dy = row<T>(args.dy, i);
    T* dx = row<T>(args.dx, i);
    const V dot = set(sum_row(
        columns, [&](int64_t j, auto part) HWY_ATTR { return hn::Mul(load(dy + j, part), load(y + j, part)); }));
    for_row(columns, [&](int64_t j, auto part) HWY_ATTR {
      const V slope = hn::Mul(scale, load(y + j, part));
      put<kStream>(hn::Mul(slope, hn::Sub(load(dy + j, part), dot)), dx + j, part);
    });
  }
  if (kStream) hwy::FlushStream();
}

void SoftmaxBackwardRows(const ops::SoftmaxBackward& args, bool stream_out, int64_t begin, int64_t end) {
  with_type(args.y.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    if (stream_out) {
      softmax_backward_rows<T, true>(args, begin, end);
    } else {
      softmax_backward_rows<T, false>(args, begin, end);
    }
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(SoftmaxForwardRows);
HWY_EXPORT(SoftmaxBackwardRows);

void softmax_forward(const Context& ctx, const ops::SoftmaxForward& args) {
  if (ctx.measuring()) return;
  const bool stream_out = streams(args.y) && args.y.data != args.x.data;
  const Blocks blocks = row_blocks(args.x.sizes[0], args.x.sizes[1] * size_of(args.x.dtype));
  const auto run = HWY_DYNAMIC_DISPATCH(SoftmaxForwardRows);
  parallel_tasks(ctx, blocks.count,
                 [&](int64_t block) { run(args, stream_out, blocks.begin(block), blocks.end(block)); });
}

void softmax_backward(const Context& ctx, const ops::SoftmaxBackward& args) {
  if (ctx.measuring()) return;
  const bool stream_out = streams(args.dx) && args.dx.data != args.dy.data && args.dx.data != args.y.data;
  const Blocks blocks = row_blocks(args.y.sizes[0], args.y.sizes[1] * size_of(args.y.dtype));
  const auto run = HWY_DYNAMIC_DISPATCH(SoftmaxBackwardRows);
  parallel_tasks(ctx, blocks.count,
                 [&](int64_t block) { run(args, stream_out, blocks.begin(block), blocks.end(block)); });
}

}  // namespace tigon::cpu
#endif
