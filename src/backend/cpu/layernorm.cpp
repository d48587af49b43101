// layernorm: the row is read from memory once; mean, variance about the mean and the result are three passes over it in
// cache, and the last one asks for the next row. Parameter gradients are summed as in rmsnorm.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/layernorm.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/rows.hpp"
#include "backend/cpu/simd-inl.hpp"
// clang-format on

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

template <class T, bool kStream>
void layernorm_forward_rows(const ops::LayernormForward& args, const float* weight, const float* bias, int64_t begin,
                            int64_t end) {
  const int64_t hidden = args.x.sizes[1];
  const auto count = static_cast<float>(hidden);
  for (int64_t i = begin; i < end; ++i) {
    const T* x = row<T>(args.x, i);
    const T* next_x = row<T>(args.x, std::min(i + 1, end - 1));
    T* y = row<T>(args.y, i);
    float mean = sum_row(hidden, [&](int64_t j, auto part) HWY_ATTR { return load(x + j, part); }) / count;
    float squares = 0.0f;
    const auto distance = [&, guess = set(mean)](int64_t j, auto part) HWY_ATTR {
      prefetch(next_x + j / 2);
      return keep_used(hn::Sub(load(x + j, part), guess), part);
    };
    if constexpr (std::is_same_v<T, float>) {
      // What a sum of large values lost shows in the distances from it.
      const Sums<2> sums = sum_row_each<2>(hidden, [&](int64_t j, auto part) HWY_ATTR {
        Vectors<2> terms;
        terms.of[0] = distance(j, part);
        terms.of[1] = hn::Mul(terms.of[0], terms.of[0]);
        return terms;
      });
      const float lost = sums.of[0] / count;
      mean += lost;
      squares = sums.of[1] - sums.of[0] * lost;
      if (squares < 0.0f) squares = 0.0f;
    } else {  // 16-bit values are too coarse to need that
      squares = sum_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
        const V v = distance(j, part);
        return hn::Mul(v, v);
      });
    }
    const V center = set(mean);
    const float rstd = 1.0f / std::sqrt(squares / count + static_cast<float>(args.eps));
    if (args.mean) args.mean.as<float>()[i] = mean;
    if (args.rstd) args.rstd.as<float>()[i] = rstd;
    const V scale = set(rstd);
    for_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
      prefetch(next_x + (hidden + j) / 2);
      const V normal = hn::Mul(hn::Sub(load(x + j, part), center), scale);
      put<kStream>(hn::MulAdd(normal, load(weight + j, part), load(bias + j, part)), y + j, part);
    });
  }
  if (kStream) hwy::FlushStream();
}

void LayernormForwardRows(const ops::LayernormForward& args, const float* weight, const float* bias, bool stream_out,
                          int64_t begin, int64_t end) {
  with_type(args.x.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = stream_out ? layernorm_forward_rows<T, true> : layernorm_forward_rows<T, false>;
    run(args, weight, bias, begin, end);
  });
}

// kRows rows from i on: together they read and write the rows of dweight and dbias once instead of each.
template <class T, bool kStream, int kRows>
TIGON_SIMD void layernorm_backward_group(const ops::LayernormBackward& args, const float* weight, float* dweight,
                                         float* dbias, int64_t i, int64_t end) {
  const int64_t hidden = args.x.sizes[1];
  const T *x[kRows], *dy[kRows], *next_x[kRows], *next_dy[kRows];
  V center[kRows], scale[kRows];
  for (int r = 0; r < kRows; ++r) {
    const int64_t next = std::min(i + kRows + r, end - 1);
    x[r] = row<T>(args.x, i + r);
    dy[r] = row<T>(args.dy, i + r);
    next_x[r] = row<T>(args.x, next);
    next_dy[r] = row<T>(args.dy, next);
    center[r] = set(args.mean.as<float>()[i + r]);
    scale[r] = set(args.rstd.as<float>()[i + r]);
  }
  const auto first_pass = [&](int64_t j, auto part) HWY_ATTR {
    const V w = load(weight + j, part);
    V dw = dweight != nullptr ? load(dweight + j, part) : zero();
    V db = dbias != nullptr ? load(dbias + j, part) : zero();
    Vectors<2 * kRows> products;
    for (int r = 0; r < kRows; ++r) {
      prefetch(next_dy[r] + j);
      const V normal = hn::Mul(hn::Sub(load(x[r] + j, part), center[r]), scale[r]);
      const V dyv = load(dy[r] + j, part);
      dw = hn::MulAdd(dyv, normal, dw);
      db = hn::Add(dyv, db);
      products.of[2 * r] = hn::Mul(dyv, w);
      products.of[2 * r + 1] = hn::Mul(products.of[2 * r], normal);
    }
    if (dweight != nullptr) store(dw, dweight + j, part);
    if (dbias != nullptr) store(db, dbias + j, part);
    return products;
  };
  const Sums<2 * kRows> sums = sum_row_each<2 * kRows>(hidden, first_pass);
  if (!args.dx) return;
  for (int r = 0; r < kRows; ++r) {
    T* dx = row<T>(args.dx, i + r);
    const V mean_m = set(sums.of[2 * r] / static_cast<float>(hidden));
    const V slope = set(sums.of[2 * r + 1] / static_cast<float>(hidden));
    for_row(hidden, [&](int64_t j, auto part) HWY_ATTR {
      prefetch(next_x[r] + j);
      const V normal = hn::Mul(hn::Sub(load(x[r] + j, part), center[r]), scale[r]);
      const V m = hn::Mul(load(dy[r] + j, part), load(weight + j, part));
      put<kStream>(hn::Mul(scale[r], hn::NegMulAdd(normal, slope, hn::Sub(m, mean_m))), dx + j, part);
    });
  }
}

template <class T, bool kStream>
void layernorm_backward_rows(const ops::LayernormBackward& args, const float* weight, float* dweight, float* dbias,
                             int64_t begin, int64_t end) {
  int64_t i = begin;
  for (; i + 2 <= end; i += 2) layernorm_backward_group<T, kStream, 2>(args, weight, dweight, dbias, i, end);
  if (i < end) layernorm_backward_group<T, kStream, 1>(args, weight, dweight, dbias, i, end);
  if (kStream) hwy::FlushStream();
}

void LayernormBackwardRows(const ops::LayernormBackward& args, const float* weight, float* dweight, float* dbias,
                           bool stream_out, int64_t begin, int64_t end) {
  with_type(args.x.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = stream_out ? layernorm_backward_rows<T, true> : layernorm_backward_rows<T, false>;
    run(args, weight, dweight, dbias, begin, end);
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(LayernormForwardRows);
HWY_EXPORT(LayernormBackwardRows);

void layernorm_forward(const Context& ctx, const ops::LayernormForward& args) {
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const Buffer parameters = ctx.scratch("layernorm_parameters", 2 * hidden * 4);
  if (ctx.measuring()) return;
  float* weight = parameters.as<float>();
  float* bias = weight + hidden;
  widen_row(args.weight, 0.0f, 1.0f, hidden, weight);
  widen_row(args.bias, 0.0f, 0.0f, hidden, bias);
  const bool stream_out = streams_apart_from(args.y, {args.x});
  const Blocks blocks = row_blocks(tokens, hidden * size_of(args.x.dtype));
  const auto run = HWY_DYNAMIC_DISPATCH(LayernormForwardRows);
  parallel_tasks(ctx, blocks.count,
                 [&](int64_t block) { run(args, weight, bias, stream_out, blocks.begin(block), blocks.end(block)); });
}

void layernorm_backward(const Context& ctx, const ops::LayernormBackward& args) {
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const Blocks blocks = row_blocks(tokens, hidden * size_of(args.x.dtype), 64);
  const Buffer weight = ctx.scratch("layernorm_weight", hidden * 4);
  const Buffer dweight = ctx.scratch("layernorm_dweight", args.dweight ? blocks.count * hidden * 4 : 0);
  const Buffer dbias = ctx.scratch("layernorm_dbias", args.dbias ? blocks.count * hidden * 4 : 0);
  if (ctx.measuring()) return;
  widen_row(args.weight, 0.0f, 1.0f, hidden, weight.as<float>());
  const bool stream_out = args.dx && streams_apart_from(args.dx, {args.x, args.dy});
  const auto run = HWY_DYNAMIC_DISPATCH(LayernormBackwardRows);
  parallel_tasks(ctx, blocks.count, [&](int64_t block) {
    const auto zeroed_row = [&](const Buffer& partials) {
      if (partials.data() == nullptr) return static_cast<float*>(nullptr);
      float* row = partials.as<float>() + block * hidden;
      std::fill_n(row, hidden, 0.0f);
      return row;
    };
    run(args, weight.as<float>(), zeroed_row(dweight), zeroed_row(dbias), stream_out, blocks.begin(block),
        blocks.end(block));
  });
  if (args.dweight)
    reduce_partials(ctx, dweight.as<float>(), blocks.count, hidden, args.dweight, args.accumulate_dweight);
  if (args.dbias) reduce_partials(ctx, dbias.as<float>(), blocks.count, hidden, args.dbias, args.accumulate_dweight);
}

}  // namespace tigon::cpu
#endif
