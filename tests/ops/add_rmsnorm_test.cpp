#include "tigon/ops/add_rmsnorm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

template <class T>
Tensor matrix(std::vector<T>& v, int64_t rows, int64_t columns) {
  return Tensor::contiguous(v.data(), dtype_of<T>(), {rows, columns});
}

struct AddRmsnormFixture : testing::Test {
  static constexpr int64_t kRows = 3, kColumns = 5;
  AddRmsnormFixture() {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = 0.3f * static_cast<float>(i) - 2.0f;
      residual[i] = 1.0f - 0.2f * static_cast<float>(i % 7);
      dy[i] = 0.1f * static_cast<float>(i % 4) - 0.15f;
      dresidual[i] = 0.05f * static_cast<float>(i);
    }
  }
  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> x = std::vector<float>(15), residual = x, dy = x, dresidual = x;
  std::vector<float> sum = std::vector<float>(15, -1.0f), y = sum, dx = sum;
  std::vector<float> rstd = std::vector<float>(3), weight = {1, 2, 3, 4, 5};
  ops::AddRmsnormForward forward{.x = matrix(x, kRows, kColumns),
                                 .residual = matrix(residual, kRows, kColumns),
                                 .weight = Tensor::contiguous(weight.data(), DType::f32, {kColumns}),
                                 .residual_out = matrix(sum, kRows, kColumns),
                                 .y = matrix(y, kRows, kColumns),
                                 .rstd = Tensor::contiguous(rstd.data(), DType::f32, {kRows})};
  ops::AddRmsnormBackward backward{.dy = matrix(dy, kRows, kColumns),
                                   .dresidual_out = matrix(dresidual, kRows, kColumns),
                                   .residual_out = matrix(sum, kRows, kColumns),
                                   .weight = forward.weight,
                                   .rstd = forward.rstd,
                                   .dx = matrix(dx, kRows, kColumns)};
};

TEST_F(AddRmsnormFixture, IsTheSumAndThenTheNorm) {
  const auto x_before = x, residual_before = residual;
  ops::add_rmsnorm_forward(ctx, forward);
  std::vector<float> y_apart(15), rstd_apart(3);
  ops::rmsnorm_forward(ctx, {.x = forward.residual_out,
                             .weight = forward.weight,
                             .y = matrix(y_apart, kRows, kColumns),
                             .rstd = Tensor::contiguous(rstd_apart.data(), DType::f32, {kRows})});
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], x[i] + residual[i]);
  EXPECT_EQ(y, y_apart);
  EXPECT_EQ(rstd, rstd_apart);
  EXPECT_EQ(x, x_before);
  EXPECT_EQ(residual, residual_before);
}

TEST_F(AddRmsnormFixture, TheSumIsRoundedBeforeTheNorm) {
  // 256 + 1 has nine bits and is 256 in bf16: the norm must see 256.
  std::vector<bf16> a = {bf16(256.0f)}, b = {bf16(1.0f)}, out(1), normal(1);
  std::vector<float> statistic(1);
  ops::add_rmsnorm_forward(ctx, {.x = matrix(a, 1, 1),
                                 .residual = matrix(b, 1, 1),
                                 .residual_out = matrix(out, 1, 1),
                                 .y = matrix(normal, 1, 1),
                                 .rstd = Tensor::contiguous(statistic.data(), DType::f32, {1}),
                                 .eps = 0});
  EXPECT_EQ(static_cast<float>(out[0]), 256.0f);
  EXPECT_EQ(statistic[0], 1.0f / 256.0f);
}

TEST_F(AddRmsnormFixture, InPlaceGivesTheSameBits) {
  ops::add_rmsnorm_forward(ctx, forward);
  ops::add_rmsnorm_backward(ctx, backward);
  const auto sum_apart = sum, y_apart = y, dx_apart = dx;
  for (const bool onto_x : {true, false}) {
    auto target = onto_x ? x : residual;
    auto args = forward;
    (onto_x ? args.x : args.residual) = args.residual_out = matrix(target, kRows, kColumns);
    ops::add_rmsnorm_forward(ctx, args);
    EXPECT_EQ(target, sum_apart);
    EXPECT_EQ(y, y_apart);
  }
  auto y_target = x;
  auto args = forward;
  args.x = args.y = matrix(y_target, kRows, kColumns);
  ops::add_rmsnorm_forward(ctx, args);
  EXPECT_EQ(y_target, y_apart);
  for (const bool onto_dy : {true, false}) {
    auto target = onto_dy ? dy : dresidual;
    auto gradient = backward;
    (onto_dy ? gradient.dy : gradient.dresidual_out) = gradient.dx = matrix(target, kRows, kColumns);
    ops::add_rmsnorm_backward(ctx, gradient);
    EXPECT_EQ(target, dx_apart);
  }
}

TEST_F(AddRmsnormFixture, BackwardTwiceGivesTheSame) {
  ops::add_rmsnorm_forward(ctx, forward);
  ops::add_rmsnorm_backward(ctx, backward);
  const auto first = dx;
  ops::add_rmsnorm_backward(ctx, backward);
  EXPECT_EQ(dx, first);
}

TEST_F(AddRmsnormFixture, NanStaysInItsRow) {
  x[6] = std::numeric_limits<float>::quiet_NaN();
  ops::add_rmsnorm_forward(ctx, forward);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 5 == 1) << i;
}

TEST_F(AddRmsnormFixture, BadArgumentsAreNamed) {
  const auto refuse = [&](auto change, const char* text) {
    auto bad = forward;
    change(bad);
    expect_error([&] { ops::add_rmsnorm_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(y, std::vector<float>(15, -1.0f));
  };
  refuse([](auto& a) { a.x = {}; }, "'x' is missing");
  refuse([](auto& a) { a.residual = {}; }, "'residual' is missing");
  refuse([](auto& a) { a.residual_out = {}; }, "'residual_out' is missing");
  refuse([](auto& a) { a.residual.sizes[1] = 4; }, "'residual' has the wrong shape");
  refuse([](auto& a) { a.residual_out.dtype = DType::bf16; }, "'residual_out' has the wrong type");
  refuse([](auto& a) { a.y = a.residual_out; }, "'y' overlaps 'residual_out'");
  refuse([](auto& a) { a.y = a.residual; }, "'y' overlaps 'residual'");
  refuse([](auto& a) { a.eps = 2; }, "'eps' is out of range");
  refuse([](auto& a) { a.offset = std::numeric_limits<double>::infinity(); }, "'offset' is not finite");
  auto bad = backward;
  bad.dx = {};
  expect_error([&] { ops::add_rmsnorm_backward(ctx, bad); }, ErrorCode::invalid_argument, "'dx' is missing");
  bad = backward;
  bad.dx = bad.residual_out;
  expect_error([&] { ops::add_rmsnorm_backward(ctx, bad); }, ErrorCode::invalid_argument, "overlaps 'residual_out'");
}

}  // namespace
}  // namespace tigon::test
