#pragma once

#include "backend/cuda/lib/gemm.hpp"

// 16-bit products of odd sizes. cuBLASLt is many times slower where a row of an operand does not begin at a multiple of
// 16 bytes, or does not end at one. So rows are padded with zeros, which add nothing to the sums. A matrix is copied
// for that only where it has no padding of its own. Some matrices would need whole rows of padding: a weight of V rows,
// V odd. There the dimension is cut instead, into the multiple of 8 below it and a tail of at most 7 rows, which are
// copied.
namespace tigon::cuda {

inline constexpr int64_t kGranule = 8;  // 16-bit elements in 16 bytes

// By shape alone: scratch is booked before there are addresses.
inline bool rows_even(const Tensor& t) {
  return t.sizes[1] % kGranule == 0 && (t.sizes[0] <= 1 || t.strides[0] % kGranule == 0);
}

// Whether a product has odd rows that slow it down by more than copies cost.
inline bool worth_padding(const Gemm& args) {
  constexpr double kLarge = 1 << 29;  // multiplications
  if (size_of(args.a.dtype) != 2 || (args.a_transposed && args.b_transposed)) return false;
  if (args.bias && !args.b_transposed) return false;
  if (rows_even(args.a) && rows_even(args.b) && rows_even(args.c)) return false;
  const int64_t k = args.a.sizes[args.a_transposed ? 0 : 1];
  return static_cast<double>(args.c.sizes[0]) * static_cast<double>(args.c.sizes[1]) * static_cast<double>(k) >= kLarge;
}

// A matrix whose rows last for whole granules: itself with its padding, or a copy.
struct PaddedMatrix {
  OwnedTensor copy;
  Tensor view;
  // Hands do the work: copy(from, to), which fills up with zeros what is longer, clear(t) and product(gemm).
  template <class Hands>
  PaddedMatrix(const Context& ctx, const char* name, const Tensor& t, bool padded, bool filled, const Hands& hands)
      : view(t) {
    view.sizes[1] = (t.sizes[1] + kGranule - 1) / kGranule * kGranule;
    if ((padded || view.sizes[1] == t.sizes[1]) && rows_even(view)) return;
    copy = OwnedTensor(ctx, name, t.dtype, {t.sizes[0], view.sizes[1]}, MemoryClass::workspace);
    view = copy.view;
    if (filled) hands.copy(t, view);
  }
};

// Room for as many rows of a matrix as a granule has.
inline OwnedTensor tail_rows(const Context& ctx, const Tensor& t) {
  return {ctx, "gemm_tail", t.dtype, {kGranule, t.sizes[1]}, MemoryClass::workspace};
}

// Those from `begin` on; past the end of the matrix they are zeros.
template <class Hands>
OwnedTensor padded_tail(const Context& ctx, const Tensor& t, int64_t begin, const Hands& hands) {
  OwnedTensor tail = tail_rows(ctx, t);
  const int64_t there = t.sizes[0] - begin;
  hands.copy(t.slice(0, begin, t.sizes[0]), tail.view.slice(0, 0, there));
  hands.clear(tail.view.slice(0, there, kGranule));
  return tail;
}

// args' product by products of even sizes.
template <class Hands>
void padded_gemm(const Context& ctx, const Gemm& args, const Hands& hands) {
  const PaddedMatrix a(ctx, "gemm_a", args.a, args.a_padded, true, hands);
  const PaddedMatrix b(ctx, "gemm_b", args.b, args.b_padded, true, hands);
  const PaddedMatrix c(ctx, "gemm_c", args.c, args.c_padded, args.accumulate, hands);
  Gemm even = args;
  even.a = a.view, even.b = b.view, even.c = c.view;
  const int64_t across = args.b_transposed   ? args.b.sizes[0]   // n: rows of b, columns of c
                         : args.a_transposed ? args.c.sizes[0]   // m: columns of a, rows of c
                                             : args.b.sizes[0];  // k: columns of a, rows of b
  const int64_t cut = across / kGranule * kGranule, end = cut + kGranule;
  if (args.b_transposed) {
    Gemm part = even;
    part.b = even.b.slice(0, 0, cut), part.c = even.c.slice(1, 0, cut);
    if (args.bias) part.bias = args.bias.slice(0, 0, cut);
    if (cut > 0) hands.product(part);
    if (cut < across) {
      const OwnedTensor rows = padded_tail(ctx, even.b, cut, hands);
      const OwnedTensor bias(ctx, "gemm_tail_bias", args.bias ? args.bias.dtype : DType::f32,
                             {1, args.bias ? kGranule : 0}, MemoryClass::workspace);
      if (args.bias) {
        const Tensor given = args.bias.slice(0, cut, across);
        hands.copy(Tensor::contiguous(given.data, given.dtype, {1, across - cut}, given.device), bias.view);
        part.bias = Tensor::contiguous(bias.view.data, bias.view.dtype, {kGranule}, bias.view.device);
      }
      part.b = rows.view, part.c = even.c.slice(1, cut, end);
      hands.product(part);
    }
  } else if (args.a_transposed) {
    Gemm part = even;
    part.a = even.a.slice(1, 0, cut), part.c = even.c.slice(0, 0, cut);
    if (cut > 0) hands.product(part);
    if (cut < across) {
      const OwnedTensor rows = args.accumulate ? padded_tail(ctx, even.c, cut, hands) : tail_rows(ctx, even.c);
      part.a = even.a.slice(1, cut, end), part.c = rows.view;
      hands.product(part);
      hands.copy(rows.view.slice(0, 0, across - cut), even.c.slice(0, cut, across));
    }
  } else {
    // The tail first: it alone is rounded once more, not the sum of all.
    Gemm part = even;
    if (cut < across) {
      const OwnedTensor rows = padded_tail(ctx, even.b, cut, hands);
      part.a = even.a.slice(1, cut, end), part.b = rows.view;
      hands.product(part);
      part.accumulate = true;
    }
    part.a = even.a.slice(1, 0, cut), part.b = even.b.slice(0, 0, cut);
    if (cut > 0) hands.product(part);
  }
  if (c.copy.view.present()) hands.copy(c.view.slice(1, 0, args.c.sizes[1]), args.c);
}

}  // namespace tigon::cuda
