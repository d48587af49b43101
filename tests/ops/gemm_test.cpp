// The CPU's matrix product below the ops: bf16 as the CPU multiplies it against bf16 widened to f32.
#include "backend/cpu/gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

struct Shape {
  int64_t m, n, k;
};

// One product with rows further apart than they are long, and everything else as asked for.
struct Problem {
  std::vector<bf16> a, b, bias, c_bf16;
  std::vector<float> c_f32;
  cpu::Gemm args;

  static std::vector<bf16> random(int64_t count, uint32_t tensor) {
    const RandomStream stream{.seed = 5, .step = 0, .tensor = tensor};
    std::vector<bf16> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(bf16(stream.normal(static_cast<uint64_t>(i))));
    return values;
  }
  static Tensor rows(void* data, DType dtype, int64_t count, int64_t columns, int64_t gap) {
    Tensor t = Tensor::contiguous(data, dtype, {count, columns});
    t.strides[0] = columns + gap;
    return t;
  }

  Problem(const Shape& s, DType type, bool a_transposed, bool b_transposed, bool with_bias, bool accumulate) {
    constexpr int64_t kGap = 3;
    const int64_t a_rows = a_transposed ? s.k : s.m, a_columns = a_transposed ? s.m : s.k;
    const int64_t b_rows = b_transposed ? s.n : s.k, b_columns = b_transposed ? s.k : s.n;
    a = random(a_rows * (a_columns + kGap), 0);
    b = random(b_rows * (b_columns + kGap), 1);
    bias = random(s.n, 2);
    // What is there counts when it is added to, and must not even be read when it is not.
    c_bf16 = random(s.m * (s.n + kGap), 3);
    if (!accumulate) c_bf16.assign(c_bf16.size(), bf16(std::numeric_limits<float>::quiet_NaN()));
    for (const bf16 value : c_bf16) c_f32.push_back(static_cast<float>(value));
    void* c = type == DType::f32 ? static_cast<void*>(c_f32.data()) : c_bf16.data();
    args = {.a = rows(a.data(), DType::bf16, a_rows, a_columns, kGap),
            .b = rows(b.data(), DType::bf16, b_rows, b_columns, kGap),
            .c = rows(c, type, s.m, s.n, kGap),
            .bias = with_bias ? Tensor::contiguous(bias.data(), DType::bf16, {s.n}) : Tensor{},
            .a_transposed = a_transposed,
            .b_transposed = b_transposed,
            .accumulate = accumulate};
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  float result(int64_t i, int64_t j) const {
    const auto at = static_cast<size_t>(i * args.c.strides[0] + j);
    return args.c.dtype == DType::f32 ? c_f32[at] : static_cast<float>(c_bf16[at]);
  }
};

TEST(Gemm, NativeProductsAgreeWithWidenedOnes) {
  if (!cpu::multiplies_natively(DType::bf16)) GTEST_SKIP() << "this CPU has no bf16 products";
  HeapArena heap;
  const Shape shapes[] = {{1, 1, 1},    {1, 37, 129},  {37, 1, 129},   {5, 3, 2},      {64, 64, 64},
                          {33, 130, 7}, {130, 33, 71}, {257, 513, 65}, {19, 23, 5001}, {300, 700, 530}};
  for (const Shape& s : shapes) {
    for (int bits = 0; bits < 32; ++bits) {
      const bool a_transposed = (bits & 1) != 0, b_transposed = (bits & 2) != 0, bias = (bits & 4) != 0;
      const bool accumulate = (bits & 8) != 0;
      const DType type = (bits & 16) != 0 ? DType::bf16 : DType::f32;
      Problem native(s, type, a_transposed, b_transposed, bias, accumulate);
      Problem widened(s, type, a_transposed, b_transposed, bias, accumulate);
      widened.args.native = false;
      cpu::gemm({.memory = &heap}, native.args);
      cpu::gemm({.memory = &heap}, widened.args);
      // Sums of k products near 1 in another order; a bf16 result may then fall to the neighbour.
      const double sum = std::sqrt(static_cast<double>(s.k)) + 1;
      const double f32_error = 16 * sum * 0x1p-24 * std::sqrt(sum);
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          const double expected = widened.result(i, j);
          const double allowed = f32_error + (type == DType::bf16 ? std::abs(expected) * 0x1p-7 : 0);
          ASSERT_NEAR(native.result(i, j), expected, allowed)
              << s.m << "x" << s.n << "x" << s.k << " case " << bits << " at " << i << ", " << j;
        }
      }
      // Between the rows nothing is written.
      const auto gap = static_cast<size_t>(s.n);
      if (s.m > 1) {
        const Problem fresh(s, type, a_transposed, b_transposed, bias, accumulate);
        ASSERT_EQ(std::isnan(native.c_f32[gap]), std::isnan(fresh.c_f32[gap]));
        ASSERT_EQ(native.c_bf16[gap].bits, fresh.c_bf16[gap].bits);
      }
    }
  }
}

// A widened operand needs scratch and a native one none, so the scratch tells which way a product goes.
TEST(Gemm, NativeProductsAreTakenWhereTheCpuHasThem) {
  if (!cpu::multiplies_natively(DType::bf16)) GTEST_SKIP() << "this CPU has no bf16 products";
  const auto scratch = [](const cpu::Gemm& args) {
    Ledger ledger;
    MeasureArena arena(ledger);
    cpu::gemm({.threads = 1, .memory = &arena}, args);
    return ledger.peak_bytes();
  };
  Problem p({300, 700, 530}, DType::f32, false, true, false, false);
  EXPECT_EQ(scratch(p.args), 0);
  p.args.native = false;
  EXPECT_GT(scratch(p.args), 0);
  p.args.native = true;
  p.args.a.strides[0] = 0;  // rows the library cannot read in place
  EXPECT_GT(scratch(p.args), 0);
}

TEST(Gemm, NativeProductsDoNotDependOnTheThreads) {
  HeapArena heap;
  for (const DType type : {DType::f32, DType::bf16}) {
    const Shape s{300, 600, 4100};  // several tiles, and the sum in pieces
    Problem one(s, type, false, true, true, true), three(s, type, false, true, true, true);
    cpu::gemm({.threads = 1, .memory = &heap}, one.args);
    cpu::gemm({.threads = 3, .memory = &heap}, three.args);
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) ASSERT_EQ(one.result(i, j), three.result(i, j));
    }
  }
}

// A caller with threads of its own calls each op on one: whose number is in the caller's team, not in one of ours.
TEST(Gemm, WorksInsideATeamOfTheCallers) {
  const auto last_element = [] {
    HeapArena heap;
    Problem p({20, 30, 40}, DType::bf16, false, true, false, false);
    cpu::gemm({.threads = 1, .memory = &heap}, p.args);
    return p.result(19, 29);
  };
  constexpr int kCallers = 4;
  std::vector<float> results(kCallers);
#pragma omp parallel for num_threads(kCallers)
  for (int caller = 0; caller < kCallers; ++caller) results[static_cast<size_t>(caller)] = last_element();
  EXPECT_EQ(results, std::vector<float>(kCallers, last_element()));
}

// 1 + 512·2⁻¹⁰: added up in bf16, each small term would be rounded away.
TEST(Gemm, BfloatProductsAreSummedInF32) {
  HeapArena heap;
  constexpr int64_t kTerms = 513;
  std::vector<bf16> a(kTerms, bf16(0x1p-10f)), b(kTerms, bf16(1.0f));
  a[0] = bf16(1.0f);
  float c = 0x1p-12f;
  cpu::gemm({.memory = &heap}, {.a = Tensor::contiguous(a.data(), DType::bf16, {1, kTerms}),
                                .b = Tensor::contiguous(b.data(), DType::bf16, {kTerms, 1}),
                                .c = Tensor::contiguous(&c, DType::f32, {1, 1}),
                                .accumulate = true});
  EXPECT_EQ(c, 1.5f + 0x1p-12f);
}

}  // namespace
}  // namespace tigon::test
