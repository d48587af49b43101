// What optimizers of low rank do to matrices of full size: one pass that sums the squares of each channel, one that
// updates. What they do in the small space is little beside these.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/low_rank.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
#include "backend/cpu/philox-inl.hpp"
#include "backend/cpu/rounding-inl.hpp"
#include "backend/cpu/squares-inl.hpp"
// clang-format on

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// sums[i] = Σ x² over row begin + i.
void RowSquares(const Tensor& x, int64_t begin, int64_t end, double* sums) {
  const int64_t columns = x.sizes[1];
  for (int64_t i = begin; i < end; ++i) sums[i - begin] = sum_of_squares(x, i * columns, (i + 1) * columns);
}

// sums[j] = Σ x² over column begin + j; at most kPiece of them.
void ColumnSquares(const Tensor& x, int64_t begin, int64_t end, double* sums) {
  HWY_ALIGN float buffer[kPiece];
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d32;
  const auto step = static_cast<int64_t>(hn::Lanes(d64));
  const int64_t n = end - begin;
  std::fill_n(sums, n, 0.0);
  for (int64_t i = 0; i < x.sizes[0]; ++i) {
    const float* p = read_piece(x, i * x.sizes[1] + begin, 1, n, buffer);
    int64_t j = 0;
    for (; j + step <= n; j += step) {
      const auto v = hn::PromoteTo(d64, hn::LoadU(d32, p + j));
      hn::StoreU(hn::MulAdd(v, v, hn::LoadU(d64, sums + j)), d64, sums + j);
    }
    for (; j < n; ++j) sums[j] += static_cast<double>(p[j]) * static_cast<double>(p[j]);
  }
}

// A row as one of length one, or where too little of its squares is left another.
void NormalizeRow(const Tensor& rows, int64_t row, double squares_before) {
  const int64_t n = rows.sizes[1];
  const auto squares = [&] { return sum_of_squares(rows, row * n, (row + 1) * n); };
  float* const p = rows.as<float>() + row * n;
  if (squares() <= ops::kLostRow * ops::kLostRow * squares_before) {
    for (int64_t j = 0; j < n; ++j) p[j] = RandomStream{}.uniform(static_cast<uint64_t>(row * n + j)) - 0.5f;
  }
  const V length = set(static_cast<float>(std::sqrt(squares())));
  for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(hn::Div(load(p + j, part), length), p + j, part); });
}

// Takes a row of length one out of rows [begin, end).
void TakeOut(const Tensor& rows, int64_t row, int64_t begin, int64_t end) {
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d32;
  const auto step = static_cast<int64_t>(hn::Lanes(d64));
  const int64_t n = rows.sizes[1];
  const float* const q = rows.as<float>() + row * n;
  for (int64_t i = begin; i < end; ++i) {
    float* const p = rows.as<float>() + i * n;
    auto sum = hn::Zero(d64);
    double rest = 0;
    int64_t j = 0;
    for (; j + step <= n; j += step)
      sum = hn::MulAdd(hn::PromoteTo(d64, hn::LoadU(d32, q + j)), hn::PromoteTo(d64, hn::LoadU(d32, p + j)), sum);
    for (; j < n; ++j) rest += static_cast<double>(q[j]) * static_cast<double>(p[j]);
    const V dot = set(static_cast<float>(hn::GetLane(hn::SumOfLanes(d64, sum)) + rest));
    for_row(n, [&](int64_t k, auto part)
                   HWY_ATTR { store(hn::NegMulAdd(dot, load(q + k, part), load(p + k, part)), p + k, part); });
  }
}

void ScaledRows(const ops::ScaledUpdate& args, bool stream_copy, int64_t begin, int64_t end) {
  HWY_ALIGN float param_buffer[kPiece];
  HWY_ALIGN float grad_buffer[kPiece];
  HWY_ALIGN uint32_t words_buffer[random_buffer(kPiece) + HWY_MAX_BYTES / 4];
  const bool by_chance = args.rounding == ops::Rounding::stochastic && args.param.dtype != DType::f32;
  const RandomStream stream{.seed = args.seed, .step = static_cast<uint32_t>(args.step), .tensor = args.tensor_id};
  const V lr = set(static_cast<float>(args.lr)), decay = set(static_cast<float>(args.decay));
  const float* const factors = args.factors.as<float>();
  const int64_t columns = args.param.sizes[1];
  for (int64_t row = begin; row < end; ++row) {
    const V of_row = factors != nullptr && !args.columns ? set(factors[row]) : set(1.0f);
    for (int64_t column = 0; column < columns; column += kPiece) {
      const int64_t n = std::min(kPiece, columns - column), first = row * columns + column;
      float* const param = read_piece(args.param, first, 1, n, param_buffer);
      const float* const grad = read_piece(args.grad, first, 1, n, grad_buffer);
      for_row(n, [&](int64_t j, auto part) HWY_ATTR {
        const V factor = factors != nullptr && args.columns ? load(factors + column + j, part) : of_row;
        const V moved = hn::NegMulAdd(hn::Mul(lr, factor), load(grad + j, part), load(param + j, part));
        store(hn::NegMulAdd(decay, moved, moved), param + j, part);
      });
      const auto element = static_cast<uint64_t>(args.first_element + first);
      store_param(param, args.param, args.param_copy, first, n,
                  by_chance ? random_words(stream, element, n, words_buffer) : nullptr, stream_copy);
    }
  }
  if (stream_copy) hwy::FlushStream();
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(RowSquares);
HWY_EXPORT(ColumnSquares);
HWY_EXPORT(NormalizeRow);
HWY_EXPORT(TakeOut);
HWY_EXPORT(ScaledRows);

void normal(const Context& ctx, const ops::Normal& args) {
  if (ctx.measuring()) return;
  constexpr int64_t kBlock = 4096;
  const int64_t n = args.y.elements();
  const RandomStream random{.seed = args.seed, .step = args.step, .tensor = args.tensor_id};
  const auto fill = [&](auto* out, int64_t begin, int64_t end) {
    using T = std::remove_pointer_t<decltype(out)>;
    std::array<double, 2> pair{};
    for (int64_t i = begin; i < end; ++i) {
      const auto element = static_cast<uint64_t>(args.first_element + i);
      if (i == begin || element % 2 == 0) pair = random.normal_pair(element / 2, args.deviation);
      out[i] = T(static_cast<float>(pair[element % 2]));
    }
  };
  parallel_tasks(ctx, (n + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t begin = block * kBlock, end = std::min(n, begin + kBlock);
    switch (args.y.dtype) {
      case DType::bf16: return fill(args.y.as<bf16>(), begin, end);
      case DType::f16: return fill(args.y.as<f16>(), begin, end);
      default: return fill(args.y.as<float>(), begin, end);
    }
  });
}

namespace {

// Of each row, or column, of a matrix.
void squares(const Context& ctx, const Tensor& x, bool columns, double* sums) {
  constexpr int64_t kChannels = 128;  // of a task: of columns a whole piece of a row
  const int64_t channels = x.sizes[columns ? 1 : 0];
  const auto run = columns ? HWY_DYNAMIC_DISPATCH(ColumnSquares) : HWY_DYNAMIC_DISPATCH(RowSquares);
  parallel_tasks(ctx, (channels + kChannels - 1) / kChannels, [&](int64_t task) {
    const int64_t begin = task * kChannels;
    run(x, begin, std::min(channels, begin + kChannels), sums + begin);
  });
}

double sum(const double* values, int64_t n) {
  double all = 0;
  for (int64_t i = 0; i < n; ++i) all += values[i];
  return all;
}

}  // namespace

void apollo_factors(const Context& ctx, const ops::ApolloFactors& args) {
  const int64_t channels = args.factors.sizes[0];
  const Buffer scratch = ctx.scratch("apollo_squares", 3 * channels * size_of(DType::f64));
  if (ctx.measuring()) return;
  double *const direction = scratch.as<double>(), *const projected = direction + channels,
                *const grad = projected + channels;
  squares(ctx, args.direction, false, direction);
  squares(ctx, args.projected, false, projected);
  squares(ctx, args.grad, args.columns, grad);
  const double scale = args.grad_scale ? static_cast<double>(*args.grad_scale.as<float>()) : 1.0;
  const auto factor = [&](double of_direction, double of_projected) {
    return std::sqrt(of_direction) / (scale * std::sqrt(of_projected) + 1e-8) * scale;
  };
  const double of_whole = args.whole ? factor(sum(direction, channels), sum(projected, channels)) : 0;
  double all = 0;
  for (int64_t j = 0; j < channels; ++j) {
    direction[j] = args.whole ? of_whole : factor(direction[j], projected[j]);
    all += direction[j] * direction[j] * grad[j];
  }
  float& last = *args.last.as<float>();
  const double length = std::sqrt(all);
  const double limit = last == 0 ? 1.0 : std::max(1.0, length / ((static_cast<double>(last) + 1e-8) * args.growth));
  last = static_cast<float>(length / limit);
  for (int64_t j = 0; j < channels; ++j)
    args.factors.as<float>()[j] = static_cast<float>(args.gain * direction[j] / limit);
}

void orthonormalize(const Context& ctx, const ops::Orthonormalize& args) {
  constexpr int64_t kRows = 16;  // of a task
  const int64_t rank = args.rows.sizes[0];
  const Buffer before = ctx.scratch("squares of rows", rank * size_of(DType::f64));
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < ops::kOrthonormalPasses * rank; ++i) {
    const int64_t row = i % rank, behind = rank - row - 1;
    if (row == 0) squares(ctx, args.rows, false, before.as<double>());
    HWY_DYNAMIC_DISPATCH(NormalizeRow)(args.rows, row, before.as<double>()[row]);
    parallel_tasks(ctx, (behind + kRows - 1) / kRows, [&](int64_t task) {
      const int64_t begin = row + 1 + task * kRows;
      HWY_DYNAMIC_DISPATCH(TakeOut)(args.rows, row, begin, std::min(rank, begin + kRows));
    });
  }
}

void scaled_update(const Context& ctx, const ops::ScaledUpdate& args) {
  if (ctx.measuring()) return;
  const int64_t rows = args.param.sizes[0], columns = args.param.sizes[1];
  const int64_t block = std::max<int64_t>(1, (int64_t{1} << 16) / columns);
  const bool stream_copy = args.param_copy && larger_than_cache(args.param_copy.bytes()) && columns % 64 == 0 &&
                           reinterpret_cast<uintptr_t>(args.param_copy.data) % 64 == 0;
  const auto run = HWY_DYNAMIC_DISPATCH(ScaledRows);
  parallel_tasks(ctx, (rows + block - 1) / block,
                 [&](int64_t task) { run(args, stream_copy, task * block, std::min(rows, (task + 1) * block)); });
}

}  // namespace tigon::cpu
#endif
