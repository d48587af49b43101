// What optimizers of low rank are made of: each storage type against the plain f64 form, and the properties of each.
#include "tigon/ops/low_rank.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/expect_error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

// Values of a storage type, and the same in f64.
class Pair {
 public:
  Pair(DType dtype, std::vector<int64_t> sizes, uint64_t seed, double deviation = 1)
      : dtype_(dtype), sizes_(std::move(sizes)) {
    int64_t n = 1;
    for (const int64_t size : sizes_) n *= size;
    bytes_.resize(static_cast<size_t>(n * size_of(dtype)));
    wide_.resize(static_cast<size_t>(n));
    const RandomStream random{.seed = seed};
    for (size_t i = 0; i < wide_.size(); ++i) put(i, deviation * static_cast<double>(random.normal(i)));
  }
  void put(size_t i, double value) {
    if (dtype_ == DType::f32) reinterpret_cast<float*>(bytes_.data())[i] = static_cast<float>(value);
    if (dtype_ == DType::bf16) reinterpret_cast<bf16*>(bytes_.data())[i] = bf16(static_cast<float>(value));
    if (dtype_ == DType::f16) reinterpret_cast<f16*>(bytes_.data())[i] = f16(static_cast<float>(value));
    wide_[i] = get(i);
  }
  double get(size_t i) const {
    if (dtype_ == DType::f32) return static_cast<double>(reinterpret_cast<const float*>(bytes_.data())[i]);
    if (dtype_ == DType::bf16) return static_cast<double>(reinterpret_cast<const bf16*>(bytes_.data())[i]);
    return static_cast<double>(static_cast<float>(reinterpret_cast<const f16*>(bytes_.data())[i]));
  }
  Tensor narrow() { return Tensor::contiguous(bytes_.data(), dtype_, sizes_); }
  Tensor wide() { return Tensor::contiguous(wide_.data(), DType::f64, sizes_); }
  // Of what was computed in the type, beside what was in f64.
  void expect_near(double relative, const std::string& what) const {
    for (size_t i = 0; i < wide_.size(); ++i)
      ASSERT_NEAR(get(i), wide_[i], relative * (std::abs(wide_[i]) + 1e-6)) << what << " at " << i;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  std::vector<int64_t> sizes_;
  std::vector<std::byte> bytes_;
  std::vector<double> wide_;
};

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
// Rows of less than a vector, of several pieces, of several tasks by either side.
constexpr std::pair<int64_t, int64_t> kSizes[] = {{1, 1}, {3, 7}, {130, 5}, {5, 2100}, {300, 257}};

TEST(Normal, IsTheStreamWhereverItBegins) {
  const Context ctx;
  const RandomStream random{.seed = 5, .step = 3, .tensor = 2};
  for (const DType dtype : kTypes) {
    for (const int64_t first : {0, 1, 2, 7}) {
      Pair y(dtype, {9001}, 0);
      ops::normal(ctx, {.y = y.narrow(), .deviation = 1, .seed = 5, .step = 3, .tensor_id = 2, .first_element = first});
      Pair expected(dtype, {9001}, 0);
      for (size_t i = 0; i < 9001; ++i)
        expected.put(i, static_cast<double>(random.normal(static_cast<uint64_t>(first) + i)));
      EXPECT_EQ(y.bytes(), expected.bytes()) << to_string(dtype) << " from " << first;
    }
  }
}

TEST(Normal, HasTheMomentsOfItsName) {
  std::vector<float> values(200000);
  ops::normal({}, {.y = Tensor::contiguous(values.data(), DType::f32, {200, 1000}), .deviation = 3, .seed = 1});
  double sum = 0, squares = 0, fourth = 0;
  for (const float value : values) {
    const auto z = static_cast<double>(value) / 3;
    sum += z, squares += z * z, fourth += z * z * z * z;
  }
  EXPECT_NEAR(sum / 2e5, 0, 0.01);
  EXPECT_NEAR(squares / 2e5, 1, 0.02);
  EXPECT_NEAR(fourth / 2e5, 3, 0.1);
}

TEST(ApolloFactors, AreThoseOfThePlainForm) {
  HeapArena heap;
  for (const DType dtype : kTypes) {
    for (const auto& [rows, columns] : kSizes) {
      for (const bool by_columns : {false, true}) {
        for (const bool whole : {false, true}) {
          for (const double before : {0.0, 0.02, 1e6}) {
            const int64_t channels = by_columns ? columns : rows;
            Pair projected(DType::f32, {channels, 3}, 1, 1e-2), direction(DType::f32, {channels, 3}, 2),
                grad(dtype, {rows, columns}, 3, 1e-2), scale(DType::f32, {1}, 0), last(DType::f32, {1}, 0),
                factors(DType::f32, {channels}, 9);
            scale.put(0, 0.25);
            last.put(0, before);
            const auto run = [&](bool wide, int threads) {
              const auto of = [&](Pair& pair) { return wide ? pair.wide() : pair.narrow(); };
              const Context ctx{.threads = threads, .memory = &heap};
              ops::apollo_factors(ctx, {.projected = of(projected),
                                        .direction = of(direction),
                                        .grad = of(grad),
                                        .grad_scale = of(scale),
                                        .last = of(last),
                                        .factors = of(factors),
                                        .columns = by_columns,
                                        .whole = whole,
                                        .gain = 11});
            };
            run(true, 1);
            run(false, 2);
            const std::string what = shape_string(grad.narrow()) + (by_columns ? " by columns" : "") +
                                     (whole ? " whole" : "") + " after " + std::to_string(before);
            factors.expect_near(1e-5, what);
            last.expect_near(1e-5, what);
            const std::vector<std::byte> bits = factors.bytes();
            last.put(0, before);
            run(false, 1);
            EXPECT_EQ(factors.bytes(), bits) << what;
          }
        }
      }
    }
  }
}

// Of a matrix whose rows are all alike: by hand.
TEST(ApolloFactors, GrowByAHundredthAStep) {
  HeapArena heap;
  const Context ctx{.memory = &heap};
  std::vector<float> grad(6, 2), projected(2, 4), direction(2, 1), factors(2);
  float last = 0;
  const ops::ApolloFactors args{.projected = Tensor::contiguous(projected.data(), DType::f32, {2, 1}),
                                .direction = Tensor::contiguous(direction.data(), DType::f32, {2, 1}),
                                .grad = Tensor::contiguous(grad.data(), DType::f32, {2, 3}),
                                .last = Tensor::contiguous(&last, DType::f32, {1}),
                                .factors = Tensor::contiguous(factors.data(), DType::f32, {2})};
  ops::apollo_factors(ctx, args);
  EXPECT_FLOAT_EQ(factors[0], 0.25f);  // 1 / 4
  EXPECT_FLOAT_EQ(last, 0.25f * std::sqrt(24.0f));
  for (float& g : grad) g *= 2;  // the projection's is held back, as of another direction of the gradient
  const float before = last;
  ops::apollo_factors(ctx, args);
  EXPECT_FLOAT_EQ(last, 1.01f * before);
  EXPECT_NEAR(factors[0], 0.25f * 1.01f / 2, 1e-7);
  for (float& g : grad) g /= 8;  // what becomes shorter is not held
  ops::apollo_factors(ctx, args);
  EXPECT_FLOAT_EQ(factors[0], 0.25f);
  // A step without a gradient does not stop all later ones.
  std::fill(grad.begin(), grad.end(), 0.0f);
  ops::apollo_factors(ctx, args);
  EXPECT_EQ(last, 0);
  std::fill(grad.begin(), grad.end(), 2.0f);
  ops::apollo_factors(ctx, args);
  EXPECT_FLOAT_EQ(factors[1], 0.25f);
}

TEST(ApolloFactors, WhatIsNotFiniteShows) {
  HeapArena heap;
  const Context ctx{.memory = &heap};
  std::vector<float> grad(4, 1), projected(2, 1), direction(2, 1), factors(2);
  float last = 1;
  grad[3] = std::numeric_limits<float>::quiet_NaN();
  projected[1] = grad[3];
  ops::apollo_factors(ctx, {.projected = Tensor::contiguous(projected.data(), DType::f32, {2, 1}),
                            .direction = Tensor::contiguous(direction.data(), DType::f32, {2, 1}),
                            .grad = Tensor::contiguous(grad.data(), DType::f32, {2, 2}),
                            .last = Tensor::contiguous(&last, DType::f32, {1}),
                            .factors = Tensor::contiguous(factors.data(), DType::f32, {2})});
  EXPECT_TRUE(std::isnan(last));
  EXPECT_TRUE(std::isnan(factors[1]));
}

TEST(ScaledUpdate, IsThatOfThePlainForm) {
  for (const DType param_type : kTypes) {
    for (const DType grad_type : kTypes) {
      for (const auto& [rows, columns] : kSizes) {
        for (const int factors_by : {0, 1, 2}) {  // none, of rows, of columns
          Pair param(param_type, {rows, columns}, 1), grad(grad_type, {rows, columns}, 2),
              factors(DType::f32, {factors_by == 2 ? columns : rows}, 3), copy(DType::f16, {rows, columns}, 4);
          const auto run = [&](bool wide) {
            const auto of = [&](Pair& pair) { return wide ? pair.wide() : pair.narrow(); };
            ops::scaled_update({}, {.param = of(param),
                                    .grad = of(grad),
                                    .factors = factors_by > 0 ? of(factors) : Tensor{},
                                    .param_copy = of(copy),
                                    .columns = factors_by == 2,
                                    .lr = 0.1,
                                    .decay = 0.25});
          };
          run(true);
          run(false);
          const double relative = param_type == DType::f32 ? 1e-6 : param_type == DType::bf16 ? 4e-3 : 6e-4;
          const std::string what = shape_string(param.narrow()) + " with factors " + std::to_string(factors_by);
          for (size_t i = 0; i < static_cast<size_t>(rows * columns); ++i) {
            ASSERT_NEAR(param.get(i), param.wide().as<double>()[i],
                        relative * (std::abs(param.wide().as<double>()[i]) + 0.1))
                << what;
            // The copy is of what was stored.
            ASSERT_EQ(copy.get(i), static_cast<double>(static_cast<float>(f16(static_cast<float>(param.get(i))))))
                << what;
          }
        }
      }
    }
  }
}

// However it is cut into rows, and by the same random bits as adamw's.
TEST(ScaledUpdate, RoundsByChanceAsAdamwDoes) {
  constexpr int64_t kRows = 90, kColumns = 33;
  Pair whole(DType::bf16, {kRows, kColumns}, 1), cut = whole, adamw = whole, grad(DType::bf16, {kRows, kColumns}, 2);
  const auto update = [&](Pair& param, int64_t begin, int64_t end, int threads) {
    ops::scaled_update({.threads = threads}, {.param = param.narrow().slice(0, begin, end),
                                              .grad = grad.narrow().slice(0, begin, end),
                                              .lr = 1e-3,
                                              .rounding = ops::Rounding::stochastic,
                                              .seed = 7,
                                              .step = 3,
                                              .tensor_id = 4,
                                              .first_element = 5 + begin * kColumns});
  };
  update(whole, 0, kRows, 2);
  update(cut, 0, 31, 1);
  update(cut, 31, kRows, 1);
  EXPECT_EQ(whole.bytes(), cut.bytes());
  // AdamW whose m is the gradient and v is one.
  const int64_t n = kRows * kColumns;
  std::vector<float> m(static_cast<size_t>(n)), v(static_cast<size_t>(n), 1.0f);
  ops::adamw({}, {.param = adamw.narrow().reshape({n}),
                  .grad = grad.narrow().reshape({n}),
                  .m = Tensor::contiguous(m.data(), DType::f32, {n}),
                  .v = Tensor::contiguous(v.data(), DType::f32, {n}),
                  .lr = 1e-3 * std::sqrt(1 / (1 - std::pow(0.999999, 3))),
                  .beta1 = 0,
                  .beta2 = 0.999999,
                  .eps = 0,
                  .step = 3,
                  .rounding = ops::Rounding::stochastic,
                  .seed = 7,
                  .tensor_id = 4,
                  .first_element = 5});
  int differ = 0;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) differ += whole.get(i) != adamw.get(i) ? 1 : 0;
  EXPECT_LT(differ, n / 100);  // where the sums differ in a last bit
}

double product_of_rows(const std::vector<float>& rows, int64_t n, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < n; ++k)
    sum += static_cast<double>(rows[static_cast<size_t>(i * n + k)]) *
           static_cast<double>(rows[static_cast<size_t>(j * n + k)]);
  return sum;
}

TEST(Orthonormalize, IsThatOfThePlainForm) {
  HeapArena heap;
  for (const auto& [rank, n] : {std::pair<int64_t, int64_t>{1, 1}, {3, 3}, {7, 30}, {33, 100}, {64, 64}, {50, 1030}}) {
    Pair rows(DType::f32, {rank, n}, 3, 1e-5), again = rows;
    ops::orthonormalize({.memory = &heap}, {.rows = rows.wide()});
    ops::orthonormalize({.threads = 2, .memory = &heap}, {.rows = rows.narrow()});
    ops::orthonormalize({.threads = 1, .memory = &heap}, {.rows = again.narrow()});
    EXPECT_EQ(again.bytes(), rows.bytes());
    // A square of random numbers is nearly singular: its last rows are not as sure as the others.
    for (size_t i = 0; i < static_cast<size_t>(rank * n); ++i)
      ASSERT_NEAR(rows.get(i), rows.wide().as<double>()[i], rank == n ? 1e-3 : 1e-5) << rank << " x " << n;
  }
}

TEST(Orthonormalize, LeavesRowsOrthonormalWhateverTheyWere) {
  constexpr int64_t kRank = 12, kN = 20;
  HeapArena heap;
  for (int kind = 0; kind < 5; ++kind) {
    const int64_t n = kind == 4 ? kRank : kN;
    std::vector<float> rows(static_cast<size_t>(kRank * n));
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t row = i / static_cast<size_t>(n), column = i % static_cast<size_t>(n);
      const auto noise = RandomStream{.seed = 4}.normal(i);
      if (kind == 1) rows[i] = static_cast<float>(row + 1) * static_cast<float>(column + 1);  // all alike
      if (kind == 2) rows[i] = static_cast<float>(column + 1) + 1e-5f * noise;                // nearly
      if (kind == 3) rows[i] = noise * std::pow(10.0f, -static_cast<float>(row));             // of many lengths
      if (kind == 4) rows[i] = row < 3 ? (row + 3 == column ? 1e-8f : 0.0f) : 0.0f;           // zeros, in a square
    }
    ops::orthonormalize({.memory = &heap}, {.rows = Tensor::contiguous(rows.data(), DType::f32, {kRank, n})});
    for (int64_t i = 0; i < kRank; ++i) {
      for (int64_t j = 0; j <= i; ++j)
        ASSERT_NEAR(product_of_rows(rows, n, i, j), i == j ? 1 : 0, 1e-5) << kind << ": " << i << ", " << j;
    }
  }
}

TEST(LowRank, BadArgumentsAreNamed) {
  HeapArena heap;
  const Context ctx{.memory = &heap};
  Pair grad(DType::f32, {4, 6}, 1), param(DType::f32, {4, 6}, 2), small(DType::f32, {4, 2}, 3),
      other = small, factors(DType::f32, {4}, 4), last(DType::f32, {1}, 5);
  const ops::ApolloFactors good{.projected = small.narrow(),
                                .direction = other.narrow(),
                                .grad = grad.narrow(),
                                .last = last.narrow(),
                                .factors = factors.narrow()};
  const auto refuse = [&](auto change, const char* text) {
    ops::ApolloFactors bad = good;
    change(bad);
    expect_error([&] { ops::apollo_factors(ctx, bad); }, ErrorCode::invalid_argument, text);
  };
  ops::apollo_factors(ctx, good);
  refuse([](auto& bad) { bad.columns = true; }, "'projected'");
  refuse([](auto& bad) { bad.last = {}; }, "'last' is missing");
  refuse([](auto& bad) { bad.factors.dtype = DType::bf16; }, "'factors' has the wrong type");
  refuse([](auto& bad) { bad.grad = bad.grad.transpose(0, 1).slice(0, 0, 4); }, "'grad'");
  refuse([](auto& bad) { bad.growth = 0.5; }, "'growth'");
  refuse([](auto& bad) { bad.direction = bad.direction.slice(1, 0, 1); }, "'direction'");
  refuse([](auto& bad) { bad.last = bad.factors.slice(0, 0, 1); }, "overlaps");

  const ops::ScaledUpdate update{.param = param.narrow(), .grad = grad.narrow(), .factors = factors.narrow()};
  const auto refuse_update = [&](auto change, const char* text) {
    ops::ScaledUpdate bad = update;
    change(bad);
    expect_error([&] { ops::scaled_update(ctx, bad); }, ErrorCode::invalid_argument, text);
  };
  ops::scaled_update(ctx, update);
  refuse_update([](auto& bad) { bad.columns = true; }, "'factors'");
  refuse_update([](auto& bad) { bad.grad = bad.param; }, "overlaps");
  refuse_update([](auto& bad) { bad.lr = std::nan(""); }, "'lr'");
  refuse_update([](auto& bad) { bad.step = 0; }, "'step'");
  expect_error(
      [&] {
        ops::orthonormalize(ctx, {.rows = param.narrow().reshape({6, 4})});
      },
      ErrorCode::invalid_argument, "at most 4");
  expect_error([&] { ops::normal(ctx, {}); }, ErrorCode::invalid_argument, "'y' is missing");
}

}  // namespace
}  // namespace tigon::test
