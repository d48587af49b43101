// Products of odd sizes as products of even ones (src/backend/cuda/lib/gemm_padded.hpp), with the CPU's hands: what a
// GPU does with them is the same sequence of copies and products.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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

// What lies between the rows of a matrix: nothing; something that is not the matrix's, up to the next multiple of 16
// bytes or not; or its own padding.
enum class Gap { none, odd, even, padding };

// [rows, columns]. The gap and a guard behind are NaN; or, padding, zeros.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t columns, Gap between, uint32_t stream) : gap(between) {
    const int64_t to_even = (8 - columns % 8) % 8;
    const int64_t stride = columns + (gap == Gap::none ? 0 : gap == Gap::odd ? to_even + 3 : to_even);
    memory_.resize(static_cast<size_t>(rows * stride + 16) * 4);
    view = Tensor::contiguous(memory_.data(), dtype, {rows, columns});
    view.strides[0] = stride;
    all = Tensor::contiguous(memory_.data(), dtype, {1, rows * stride + 16});
    for (int64_t e = 0; e < all.sizes[1]; ++e) set(all, 0, e, gap == Gap::padding ? 0.0 : std::nan(""));
    const RandomStream random{.seed = 3, .tensor = stream};
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) set(view, i, j, random.normal(static_cast<uint64_t>(i * columns + j)));
    }
  }
  // What is not the matrix's was left alone.
  void check_gaps() const {
    if (gap == Gap::padding) return;
    for (int64_t e = 0; e < all.sizes[1]; ++e) {
      const bool inside = e / view.strides[0] < view.sizes[0] && e % view.strides[0] < view.sizes[1];
      ASSERT_EQ(std::isnan(value(all, 0, e)), !inside) << e;
    }
  }

  Gap gap;
  Tensor view, all;

 private:
  std::vector<std::byte> memory_;
};

// Memory full of NaN: what is not filled or cleared shows.
class NanArena final : public MemorySource {
 public:
  Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) override {
    const Allocation taken = heap_.take(name, bytes, memory_class);
    std::memset(taken.data, 0xff, static_cast<size_t>(bytes));
    return taken;
  }
  void give_back(const Allocation& allocation) noexcept override { heap_.give_back(allocation); }

 private:
  HeapArena heap_;
};

struct Kind {
  bool a_transposed, b_transposed;
};

struct Gaps {
  Gap a, b, c;
};

void check(const Kind& kind, int64_t m, int64_t n, int64_t k, DType out, bool accumulate, const Gaps& gaps, bool bias) {
  SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << (kind.a_transposed ? " aT" : "")
                                  << (kind.b_transposed ? " bT" : "") << (accumulate ? " accumulate" : "") << " gaps "
                                  << static_cast<int>(gaps.a) << static_cast<int>(gaps.b) << static_cast<int>(gaps.c)
                                  << " " << to_string(out));
  const Matrix a = kind.a_transposed ? Matrix(DType::bf16, k, m, gaps.a, 1) : Matrix(DType::bf16, m, k, gaps.a, 1);
  const Matrix b = kind.b_transposed ? Matrix(DType::bf16, n, k, gaps.b, 2) : Matrix(DType::bf16, k, n, gaps.b, 2);
  const Matrix expected(out, m, n, gaps.c, 3), got(out, m, n, gaps.c, 3), added(out, 1, n, Gap::none, 4);
  Gemm args{.a = a.view,
            .b = b.view,
            .c = expected.view,
            .a_transposed = kind.a_transposed,
            .b_transposed = kind.b_transposed,
            .accumulate = accumulate,
            .a_padded = gaps.a == Gap::padding,
            .b_padded = gaps.b == Gap::padding,
            .c_padded = gaps.c == Gap::padding};
  if (bias) args.bias = Tensor::contiguous(added.view.data, out, {n});
  multiply(args);
  args.c = got.view;
  NanArena memory;
  int products = 0;
  cuda::padded_gemm({.memory = &memory}, args, HostHands{&products});
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
  got.check_gaps();
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
      for (int combination = 0; combination < 64; ++combination) {
        const Gaps gaps{Gap(combination % 4), Gap(combination / 4 % 4), Gap(combination / 16)};
        for (const DType out : {DType::bf16, DType::f32}) {
          for (const bool accumulate : {false, true}) {
            check(kind, m, n, k, out, accumulate, gaps, false);
            if (kind.b_transposed) check(kind, m, n, k, out, accumulate, gaps, true);
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
