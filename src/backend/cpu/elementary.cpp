// The elementary ops: any strides, any mix of types. The last dimension is worked on in pieces that are widened to f32
// in a small buffer (or read in place when they already are contiguous f32), computed, and narrowed again.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/elementary.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/math-inl.hpp"
#include "backend/cpu/pieces-inl.hpp"
#include "backend/cpu/rows.hpp"
// clang-format on

#include <algorithm>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

template <class F>
void map_row(const float* x, float* y, int64_t n, const F& f) {
  for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(f(load(x + j, part)), y + j, part); });
}

void UnaryPiece(const ops::Unary& args, int64_t x_offset, int64_t y_offset, int64_t x_stride, int64_t y_stride,
                int64_t n) {
  HWY_ALIGN float in[kPiece];
  HWY_ALIGN float out[kPiece];
  const D d;
  if (args.alpha == 0) std::fill_n(in, n, 0.0f);
  const float* x = args.alpha == 0 ? in : read_piece(args.x, x_offset, x_stride, n, in);
  float* y = args.y.dtype == DType::f32 && y_stride == 1 ? args.y.as<float>() + y_offset : out;
  const V alpha = set(static_cast<float>(args.alpha)), beta = set(static_cast<float>(args.beta));
  const auto apply = [&](const auto& f)
                         HWY_ATTR { map_row(x, y, n, [&](V v) HWY_ATTR { return f(hn::MulAdd(alpha, v, beta)); }); };
  switch (args.op) {
    case ops::UnaryOp::copy: apply([](V v) HWY_ATTR { return v; }); break;
    case ops::UnaryOp::square: apply([](V v) HWY_ATTR { return hn::Mul(v, v); }); break;
    case ops::UnaryOp::sqrt: apply([](V v) HWY_ATTR { return hn::Sqrt(v); }); break;
    case ops::UnaryOp::rsqrt: apply([](V v) HWY_ATTR { return hn::Div(set(1.0f), hn::Sqrt(v)); }); break;
    case ops::UnaryOp::exp: apply([](V v) HWY_ATTR { return full_exp(v); }); break;
    case ops::UnaryOp::log: apply([](V v) HWY_ATTR { return full_log(v); }); break;
    case ops::UnaryOp::tanh: apply([&](V v) HWY_ATTR { return hn::Tanh(d, v); }); break;
    case ops::UnaryOp::silu: apply([](V v) HWY_ATTR { return silu(v).value; }); break;
    case ops::UnaryOp::gelu_tanh: apply([](V v) HWY_ATTR { return gelu_tanh(v).value; }); break;
    case ops::UnaryOp::gelu_erf: apply([](V v) HWY_ATTR { return gelu_erf(v).value; }); break;
  }
  if (y == out) write_piece(out, args.y, y_offset, y_stride, n);
}

void BinaryPiece(const ops::Binary& args, const int64_t* offsets, const int64_t* strides, int64_t n) {
  HWY_ALIGN float in_a[kPiece];
  HWY_ALIGN float in_b[kPiece];
  HWY_ALIGN float out[kPiece];
  const float* a = read_piece(args.a, offsets[0], strides[0], n, in_a);
  const float* b = read_piece(args.b, offsets[1], strides[1], n, in_b);
  float* y = args.y.dtype == DType::f32 && strides[2] == 1 ? args.y.as<float>() + offsets[2] : out;
  const auto apply = [&](const auto& f) HWY_ATTR {
    for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(f(load(a + j, part), load(b + j, part)), y + j, part); });
  };
  switch (args.op) {
    case ops::BinaryOp::add: apply([](V u, V v) HWY_ATTR { return hn::Add(u, v); }); break;
    case ops::BinaryOp::sub: apply([](V u, V v) HWY_ATTR { return hn::Sub(u, v); }); break;
    case ops::BinaryOp::mul: apply([](V u, V v) HWY_ATTR { return hn::Mul(u, v); }); break;
    case ops::BinaryOp::div: apply([](V u, V v) HWY_ATTR { return hn::Div(u, v); }); break;
    case ops::BinaryOp::silu_grad: apply([](V u, V v) HWY_ATTR { return hn::Mul(u, silu(v).slope); }); break;
    case ops::BinaryOp::gelu_tanh_grad: apply([](V u, V v) HWY_ATTR { return hn::Mul(u, gelu_tanh(v).slope); }); break;
    case ops::BinaryOp::gelu_erf_grad: apply([](V u, V v) HWY_ATTR { return hn::Mul(u, gelu_erf(v).slope); }); break;
    case ops::BinaryOp::tanh_grad:
      apply([](V u, V v) HWY_ATTR { return hn::Mul(u, hn::NegMulAdd(v, v, set(1.0f))); });
      break;
  }
  if (y == out) write_piece(out, args.y, offsets[2], strides[2], n);
}

// Sum (or maximum) of one row.
float ReduceRow(const Tensor& x, int64_t offset, int64_t stride, int64_t columns, bool take_max) {
  HWY_ALIGN float buffer[kPiece];
  double sum = 0;
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t begin = 0; begin < columns; begin += kPiece) {
    const int64_t n = std::min(kPiece, columns - begin);
    const float* p = read_piece(x, offset + begin * stride, stride, n, buffer);
    if (take_max) {
      for (int64_t j = 0; j < n; ++j) largest = p[j] > largest || p[j] != p[j] ? p[j] : largest;
    } else {
      sum += sum_row(n, [&](int64_t j, auto part) HWY_ATTR { return load(p + j, part); });
    }
  }
  return take_max ? largest : static_cast<float>(sum);
}

// sums[j] += x[i, first + j] for rows [begin, end).
void AddRows(const Tensor& x, int64_t begin, int64_t end, int64_t first, int64_t n, float* sums) {
  HWY_ALIGN float buffer[kPiece];
  for (int64_t i = begin; i < end; ++i) {
    const float* p = read_piece(x, i * x.strides[0] + first * x.strides[1], x.strides[1], n, buffer);
    for_row(n, [&](int64_t j, auto part)
                   HWY_ATTR { store(hn::Add(load(sums + j, part), load(p + j, part)), sums + j, part); });
  }
}

void WritePiece(const float* values, const Tensor& t, int64_t offset, int64_t stride, int64_t n) {
  write_piece(values, t, offset, stride, n);
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(UnaryPiece);
HWY_EXPORT(BinaryPiece);
HWY_EXPORT(ReduceRow);
HWY_EXPORT(AddRows);
HWY_EXPORT(WritePiece);

namespace {

constexpr int64_t kElementaryPiece = 1024;

// Offset of the first element of line `line` (all dimensions but the last, counted row-major).
int64_t line_offset(const Tensor& t, int64_t line) {
  int64_t offset = 0;
  for (int d = t.rank - 2; d >= 0; --d) {
    offset += line % t.sizes[d] * t.strides[d];
    line /= t.sizes[d];
  }
  return offset;
}

// body(line, begin, n) over all pieces of all lines of t, in parallel.
template <class Body>
void for_pieces(const Context& ctx, const Tensor& t, const Body& body) {
  if (t.elements() == 0) return;
  const int64_t columns = t.rank == 0 ? 1 : t.sizes[t.rank - 1];
  const int64_t lines = t.elements() / columns;
  const int64_t pieces = (columns + kElementaryPiece - 1) / kElementaryPiece;
  const Blocks blocks(lines * pieces, std::max<int64_t>(1, 16384 / columns), 4096);
  parallel_tasks(ctx, blocks.count, [&](int64_t block) {
    for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      const int64_t begin = i % pieces * kElementaryPiece;
      body(i / pieces, begin, std::min(kElementaryPiece, columns - begin));
    }
  });
}

int64_t last_stride(const Tensor& t) { return t.rank == 0 ? 1 : t.strides[t.rank - 1]; }

float read_element(const Tensor& t, int64_t offset) {
  switch (t.dtype) {
    case DType::bf16: return static_cast<float>(t.as<bf16>()[offset]);
    case DType::f16: return static_cast<float>(t.as<f16>()[offset]);
    default: return t.as<float>()[offset];
  }
}

}  // namespace

void unary(const Context& ctx, const ops::Unary& args) {
  if (ctx.measuring()) return;
  const auto run = HWY_DYNAMIC_DISPATCH(UnaryPiece);
  const int64_t xs = last_stride(args.x), ys = last_stride(args.y);
  for_pieces(ctx, args.y, [&](int64_t line, int64_t begin, int64_t n) {
    run(args, line_offset(args.x, line) + begin * xs, line_offset(args.y, line) + begin * ys, xs, ys, n);
  });
}

void binary(const Context& ctx, const ops::Binary& args) {
  if (ctx.measuring()) return;
  const auto run = HWY_DYNAMIC_DISPATCH(BinaryPiece);
  const int64_t strides[3] = {last_stride(args.a), last_stride(args.b), last_stride(args.y)};
  for_pieces(ctx, args.y, [&](int64_t line, int64_t begin, int64_t n) {
    const int64_t offsets[3] = {line_offset(args.a, line) + begin * strides[0],
                                line_offset(args.b, line) + begin * strides[1],
                                line_offset(args.y, line) + begin * strides[2]};
    run(args, offsets, strides, n);
  });
}

void reduce(const Context& ctx, const ops::Reduce& args) {
  if (ctx.measuring()) return;
  const int64_t rows = args.x.sizes[0], columns = args.x.sizes[1];
  const auto write = HWY_DYNAMIC_DISPATCH(WritePiece);
  if (!args.over_rows) {
    const auto run = HWY_DYNAMIC_DISPATCH(ReduceRow);
    const Blocks blocks(rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, columns)), 1024);
    parallel_tasks(ctx, blocks.count, [&](int64_t block) {
      for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
        float value = run(args.x, i * args.x.strides[0], args.x.strides[1], columns, args.op == ops::ReduceOp::max);
        if (args.op == ops::ReduceOp::mean) value /= static_cast<float>(columns);
        write(&value, args.y, i * args.y.strides[0], 1, 1);
      }
    });
    return;
  }
  // Columns: each piece of columns adds up its rows 64 at a time, so that no f32 sum grows long.
  const auto add = HWY_DYNAMIC_DISPATCH(AddRows);
  constexpr int64_t kColumns = 256, kRows = 64;
  parallel_tasks(ctx, (columns + kColumns - 1) / kColumns, [&](int64_t task) {
    const int64_t first = task * kColumns, n = std::min(kColumns, columns - first);
    double total[kColumns] = {};
    for (int64_t begin = 0; begin < rows; begin += kRows) {
      float part[kColumns] = {};
      add(args.x, begin, std::min(rows, begin + kRows), first, n, part);
      for (int64_t j = 0; j < n; ++j) total[j] += part[j];
    }
    float result[kColumns];
    const double divisor = args.op == ops::ReduceOp::mean ? static_cast<double>(rows) : 1.0;
    for (int64_t j = 0; j < n; ++j) result[j] = static_cast<float>(total[j] / divisor);
    write(result, args.y, first * args.y.strides[0], args.y.strides[0], n);
  });
}

void gather(const Context& ctx, const ops::Gather& args) {
  if (ctx.measuring()) return;
  const auto write = HWY_DYNAMIC_DISPATCH(WritePiece);
  for (int64_t i = 0; i < args.x.sizes[0]; ++i) {
    const int64_t column = index_at(args.index, i);
    const float value = column < 0 ? 0.0f : read_element(args.x, i * args.x.strides[0] + column * args.x.strides[1]);
    write(&value, args.y, i * args.y.strides[0], 1, 1);
  }
}

void scatter_add(const Context& ctx, const ops::ScatterAdd& args) {
  if (ctx.measuring()) return;
  const auto write = HWY_DYNAMIC_DISPATCH(WritePiece);
  for (int64_t i = 0; i < args.y.sizes[0]; ++i) {
    const int64_t column = index_at(args.index, i);
    if (column < 0) continue;
    const int64_t offset = i * args.y.strides[0] + column * args.y.strides[1];
    const float value = read_element(args.y, offset) + read_element(args.x, i * args.x.strides[0]);
    write(&value, args.y, offset, 1, 1);
  }
}

}  // namespace tigon::cpu
#endif
