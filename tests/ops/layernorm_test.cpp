#include "tigon/ops/layernorm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

struct LayernormFixture : testing::Test {
  LayernormFixture() {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = 0.4f * static_cast<float>(i * i % 11) - 2.0f;
      dy[i] = 0.1f * static_cast<float>(i % 5) - 0.2f;
    }
  }
  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> x = std::vector<float>(12), dy = x, y = std::vector<float>(12, -1.0f), dx = y;
  std::vector<float> weight = {1, 2, 3, 4}, bias = {1, 0, -1, 2}, dweight = {0, 0, 0, 0}, dbias = dweight;
  std::vector<float> mean = std::vector<float>(3), rstd = mean;
  Tensor vector(std::vector<float>& v) {
    return Tensor::contiguous(v.data(), DType::f32, {static_cast<int64_t>(v.size())});
  }
  Tensor matrix(std::vector<float>& v) { return Tensor::contiguous(v.data(), DType::f32, {3, 4}); }
  ops::LayernormForward forward{.x = matrix(x),
                                .weight = vector(weight),
                                .bias = vector(bias),
                                .y = matrix(y),
                                .mean = vector(mean),
                                .rstd = vector(rstd)};
  ops::LayernormBackward backward{.dy = matrix(dy),
                                  .x = matrix(x),
                                  .weight = vector(weight),
                                  .mean = vector(mean),
                                  .rstd = vector(rstd),
                                  .dx = matrix(dx),
                                  .dweight = vector(dweight),
                                  .dbias = vector(dbias)};
};

TEST_F(LayernormFixture, NormalisesEachRow) {
  forward.weight = forward.bias = {};
  ops::layernorm_forward(ctx, forward);
  for (size_t i = 0; i < 3; ++i) {
    float sum = 0, squares = 0;
    for (size_t j = 0; j < 4; ++j) sum += y[4 * i + j], squares += y[4 * i + j] * y[4 * i + j];
    EXPECT_NEAR(sum, 0.0f, 1e-5f);
    EXPECT_NEAR(squares, 4.0f, 1e-3f);
  }
}

TEST_F(LayernormFixture, VarianceSurvivesALargeMean) {
  // The textbook mean(x²) − mean² gives rubbish here; about the mean it is exact.
  for (size_t i = 0; i < x.size(); ++i) x[i] = 8192.0f + 0.5f * static_cast<float>(i % 4);
  forward.eps = 0;
  ops::layernorm_forward(ctx, forward);
  EXPECT_EQ(mean[0], 8192.75f);
  EXPECT_FLOAT_EQ(rstd[0], 1.0f / std::sqrt(0.3125f));
}

TEST_F(LayernormFixture, InPlaceGivesTheSameBitsAndInputsAreKept) {
  const auto x_before = x, dy_before = dy;
  ops::layernorm_forward(ctx, forward);
  ops::layernorm_backward(ctx, backward);
  EXPECT_EQ(x, x_before);
  EXPECT_EQ(dy, dy_before);
  const auto y_apart = y, dx_apart = dx;
  for (auto* target : {&dy, &x}) {
    const auto kept = *target;
    auto args = backward;
    args.dx = matrix(*target);
    ops::layernorm_backward(ctx, args);
    EXPECT_EQ(*target, dx_apart);
    *target = kept;
  }
  forward.y = forward.x;
  ops::layernorm_forward(ctx, forward);
  EXPECT_EQ(x, y_apart);
}

TEST_F(LayernormFixture, GradientsAccumulateWhenAsked) {
  ops::layernorm_forward(ctx, forward);
  ops::layernorm_backward(ctx, backward);
  const auto dweight_once = dweight, dbias_once = dbias, dx_once = dx;
  ops::layernorm_backward(ctx, backward);
  EXPECT_EQ(dweight, dweight_once);
  EXPECT_EQ(dx, dx_once);
  backward.accumulate_dweight = true;
  ops::layernorm_backward(ctx, backward);
  for (size_t j = 0; j < 4; ++j) {
    EXPECT_FLOAT_EQ(dweight[j], 2 * dweight_once[j]);
    EXPECT_FLOAT_EQ(dbias[j], 2 * dbias_once[j]);
  }
}

TEST_F(LayernormFixture, ParameterGradientsAlone) {
  ops::layernorm_forward(ctx, forward);
  ops::layernorm_backward(ctx, backward);
  const auto dbias_before = dbias;
  dbias.assign(4, 0.0f);
  auto args = backward;
  args.dx = args.dweight = {};
  ops::layernorm_backward(ctx, args);
  EXPECT_EQ(dbias, dbias_before);
}

TEST_F(LayernormFixture, NanAndInfinityStayInTheirRows) {
  x[0] = std::numeric_limits<float>::quiet_NaN();
  x[11] = std::numeric_limits<float>::infinity();
  ops::layernorm_forward(ctx, forward);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(std::isnan(y[i]), i / 4 != 1) << i;
}

TEST_F(LayernormFixture, NoRows) {
  forward.x.sizes[0] = forward.y.sizes[0] = forward.mean.sizes[0] = forward.rstd.sizes[0] = 0;
  ops::layernorm_forward(ctx, forward);
  backward.x.sizes[0] = backward.dy.sizes[0] = backward.dx.sizes[0] = 0;
  backward.mean.sizes[0] = backward.rstd.sizes[0] = 0;
  dweight.assign(4, 7.0f);
  ops::layernorm_backward(ctx, backward);
  EXPECT_EQ(dweight, std::vector<float>(4, 0.0f));
}

TEST_F(LayernormFixture, BadArgumentsAreNamed) {
  const auto refuse = [&](auto change, const char* text) {
    auto bad = forward;
    change(bad);
    expect_error([&] { ops::layernorm_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(y, std::vector<float>(12, -1.0f));
  };
  refuse([](auto& a) { a.x = {}; }, "'x' is missing");
  refuse([](auto& a) { a.y = {}; }, "'y' is missing");
  refuse([](auto& a) { a.bias.sizes[0] = 3; }, "'bias' has the wrong shape");
  refuse([](auto& a) { a.weight.dtype = DType::bf16; }, "'weight' has the wrong type");
  refuse([](auto& a) { a.mean.dtype = DType::i32; }, "'mean' has the wrong type");
  refuse([](auto& a) { a.mean = a.rstd; }, "'mean' overlaps 'rstd'");
  refuse([](auto& a) { a.rstd.data = a.bias.data; }, "'rstd' overlaps 'bias'");
  refuse([](auto& a) { a.eps = -1; }, "'eps' is out of range");
  auto bad = backward;
  bad.dbias = bad.dweight;
  expect_error([&] { ops::layernorm_backward(ctx, bad); }, ErrorCode::invalid_argument, "'dweight' overlaps 'dbias'");
  bad = backward;
  bad.rstd.data = bad.dx.data;  // not the other way round: dx is longer, and mean may lie beyond rstd
  expect_error([&] { ops::layernorm_backward(ctx, bad); }, ErrorCode::invalid_argument, "'dx' overlaps 'rstd'");
  bad = backward;
  bad.mean = {};
  expect_error([&] { ops::layernorm_backward(ctx, bad); }, ErrorCode::invalid_argument, "'mean' is missing");
}

// A sum of many large values loses its last bits; the mean must not, as everything else is a distance from it.
TEST(Layernorm, TheMeanOfALargeRowIsTheNearestF32) {
  HeapArena heap;
  const Context ctx{.memory = &heap};
  for (const int64_t columns : {3, 768, 8191, 8192}) {
    for (const double level : {100.0, 1e3, 1e5, -1e5}) {
      std::vector<float> x(static_cast<size_t>(columns)), y(x.size());
      double exact = 0;
      for (size_t j = 0; j < x.size(); ++j) {
        x[j] = static_cast<float>(level + std::sin(1.7 * static_cast<double>(j)));
        exact += static_cast<double>(x[j]) / static_cast<double>(columns);
      }
      float mean = 0;
      ops::layernorm_forward(ctx, {.x = Tensor::contiguous(x.data(), DType::f32, {1, columns}),
                                   .y = Tensor::contiguous(y.data(), DType::f32, {1, columns}),
                                   .mean = Tensor::contiguous(&mean, DType::f32, {1})});
      const float next = std::nextafter(mean, std::numeric_limits<float>::infinity());
      EXPECT_NEAR(mean, exact, 0.51 * static_cast<double>(next - mean)) << columns << " at " << level;
    }
  }
}

}  // namespace
}  // namespace tigon::test
