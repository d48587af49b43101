// Products of odd sizes as products of even ones (src/backend/cuda/lib/gemm_padded.hpp), with the CPU's hands: what a
// GPU does with them is the same sequence of copies and products.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "backend/cuda/lib/gemm_padded.hpp"
#include "tigon/core/half.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

using cuda::Gemm;

double value(const Tensor& t, int64_t i, int64_t j) {
  const int64_t at = i * t.strides[0] + j;
  return t.dtype == DType::f32 ? t.as<float>()[at] : static_cast<float>(t.as<bf16>()[at]);
}
void set(const Tensor& t, int64_t i, int64_t j, double v) {
  const int64_t at = i * t.strides[0] + j;
  if (t.dtype == DType::f32) {
    t.as<float>()[at] = static_cast<float>(v);
  } else {
    t.as<bf16>()[at] = bf16(static_cast<float>(v));
  }
}

// c as an exact sum, rounded once.
void multiply(const Gemm& g) {
  const int64_t k = g.a.sizes[g.a_transposed ? 0 : 1];
  ASSERT_EQ(g.b.sizes[g.b_transposed ? 1 : 0], k);
  ASSERT_EQ(g.a.sizes[g.a_transposed ? 1 : 0], g.c.sizes[0]);
  ASSERT_EQ(g.b.sizes[g.b_transposed ? 0 : 1], g.c.sizes[1]);
  for (int64_t i = 0; i < g.c.sizes[0]; ++i) {
    for (int64_t j = 0; j < g.c.sizes[1]; ++j) {
      double sum = g.accumulate ? value(g.c, i, j) : 0.0;
      if (g.bias) sum += g.bias.dtype == DType::f32 ? g.bias.as<float>()[j] : static_cast<float>(g.bias.as<bf16>()[j]);
      for (int64_t p = 0; p < k; ++p) {
        sum += (g.a_transposed ? value(g.a, p, i) : value(g.a, i, p)) *
               (g.b_transposed ? value(g.b, j, p) : value(g.b, p, j));
      }
      set(g.c, i, j, sum);
    }
  }
}

struct HostHands {
  int* products;
  void copy(const Tensor& from, const Tensor& to) const {
    ASSERT_EQ(from.sizes[0], to.sizes[0]);
    for (int64_t i = 0; i < to.sizes[0]; ++i) {
      for (int64_t j = 0; j < to.sizes[1]; ++j) set(to, i, j, j < from.sizes[1] ? value(from, i, j) : 0.0);
    }
  }
  void clear(const Tensor& t) const { copy(t.slice(1, 0, 0), t); }
  void product(const Gemm& g) const {
    for (const Tensor* t : {&g.a, &g.b, &g.c}) EXPECT_TRUE(cuda::rows_even(*t)) << shape_string(*t);
    ++*products;
    multiply(g);
  }
};

// [rows, columns] with `gap` elements between rows. The gap and a guard behind are NaN; or, padded, zeros.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t columns, int64_t gap, bool padded, uint32_t stream)
      : memory_(static_cast<size_t>(rows * (columns + gap) + 16) * 4) {
    view = Tensor::contiguous(memory_.data(), dtype, {rows, columns});
    view.strides[0] = columns + gap;
    Tensor all = Tensor::contiguous(memory_.data(), dtype, {1, rows * (columns + gap) + 16});
    for (int64_t e = 0; e < all.sizes[1]; ++e) set(all, 0, e, padded ? 0.0 : std::nan(""));
    const RandomStream random{.seed = 3, .tensor = stream};
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) set(view, i, j, random.normal(static_cast<uint64_t>(i * columns + j)));
    }
  }
  Tensor view;
  std::vector<std::byte> bytes() const { return memory_; }

 private:
  std::vector<std::byte> memory_;
};

struct Kind {
  bool a_transposed, b_transposed;
};

void check(const Kind& kind, int64_t m, int64_t n, int64_t k, DType out, bool accumulate, bool padded, bool bias) {
  SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << (kind.a_transposed ? " aT" : "")
                                  << (kind.b_transposed ? " bT" : "") << (accumulate ? " accumulate" : "")
                                  << (padded ? " padded" : "") << " " << to_string(out));
  const auto gap = [&](int64_t columns) { return padded ? (8 - columns % 8) % 8 : 0; };
  const auto matrix = [&](DType dtype, int64_t rows, int64_t columns, uint32_t stream) {
    return Matrix(dtype, rows, columns, gap(columns), padded, stream);
  };
  const Matrix a = kind.a_transposed ? matrix(DType::bf16, k, m, 1) : matrix(DType::bf16, m, k, 1);
  const Matrix b = kind.b_transposed ? matrix(DType::bf16, n, k, 2) : matrix(DType::bf16, k, n, 2);
  const Matrix expected = matrix(out, m, n, 3), got = matrix(out, m, n, 3), added = matrix(out, 1, n, 4);
  Gemm args{.a = a.view,
            .b = b.view,
            .c = expected.view,
            .a_transposed = kind.a_transposed,
            .b_transposed = kind.b_transposed,
            .accumulate = accumulate,
            .a_padded = padded,
            .b_padded = padded,
            .c_padded = padded};
  if (bias) args.bias = Tensor::contiguous(added.view.data, out, {n});
  multiply(args);
  args.c = got.view;
  HeapArena heap;
  int products = 0;
  cuda::padded_gemm({.memory = &heap}, args, HostHands{&products});
  EXPECT_LE(products, 2);
  // One rounding more, of the few last terms, where they are added up on their own.
  const bool twice = !kind.a_transposed && !kind.b_transposed && k % 8 != 0;
  const double eps = out == DType::f32 ? 0x1p-23 : 0x1p-8;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double exact = value(expected.view, i, j);
      ASSERT_NEAR(value(got.view, i, j), exact, twice ? eps * (std::abs(exact) + 8) : 0) << i << ", " << j;
    }
  }
  // What lies between the rows of somebody else's matrix is left alone.
  if (!padded && gap(n) == 0) {
    const Tensor tail = Tensor::contiguous(got.view.data, out, {1, m * n + 16});
    for (int64_t e = m * n; e < m * n + 16; ++e) ASSERT_TRUE(std::isnan(value(tail, 0, e)));
  }
}

TEST(PaddedGemm, IsTheSameProduct) {
  for (const Kind kind : {Kind{false, true}, {false, false}, {true, false}}) {
    for (const auto& [m, n, k] : {std::tuple{16, 16, 16},
                                  {17, 16, 16},
                                  {16, 17, 16},
                                  {16, 16, 17},
                                  {9, 23, 31},
                                  {1, 9, 15},
                                  {5, 3, 7},
                                  {8, 1, 1}}) {
      for (const DType out : {DType::bf16, DType::f32}) {
        for (const bool accumulate : {false, true}) {
          for (const bool padded : {false, true}) {
            check(kind, m, n, k, out, accumulate, padded, false);
            if (kind.b_transposed && !accumulate) check(kind, m, n, k, out, accumulate, padded, true);
          }
        }
      }
    }
  }
}

TEST(PaddedGemm, OnlyLargeOddProductsAreWorthIt) {
  const auto worth = [](int64_t m, int64_t n, int64_t k, DType dtype) {
    return cuda::worth_padding({.a = Tensor::contiguous(nullptr, dtype, {m, k}),
                                .b = Tensor::contiguous(nullptr, dtype, {n, k}),
                                .c = Tensor::contiguous(nullptr, dtype, {m, n}),
                                .b_transposed = true});
  };
  EXPECT_TRUE(worth(4096, 32001, 1024, DType::bf16));
  EXPECT_TRUE(worth(4096, 4096, 1001, DType::f16));
  EXPECT_FALSE(worth(4096, 32000, 1024, DType::bf16));
  EXPECT_FALSE(worth(4095, 32000, 1024, DType::bf16));  // rows may be as many as they like
  EXPECT_FALSE(worth(4096, 32001, 1024, DType::f32));
  EXPECT_FALSE(worth(16, 17, 16, DType::bf16));
}

}  // namespace
}  // namespace tigon::test
