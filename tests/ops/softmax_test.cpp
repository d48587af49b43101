#include "tigon/ops/softmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct SoftmaxFixture : testing::Test {
  Context ctx;
  std::vector<float> x = std::vector<float>(8, 1.0f), y = std::vector<float>(8, -1.0f);
  ops::SoftmaxForward args{.x = Tensor::contiguous(x.data(), DType::f32, {2, 4}),
                           .y = Tensor::contiguous(y.data(), DType::f32, {2, 4})};
};

TEST_F(SoftmaxFixture, EqualValuesShareEvenlyAlsoInPlace) {
  args.y = args.x;
  ops::softmax_forward(ctx, args);
  EXPECT_EQ(x, std::vector<float>(8, 0.25f));
}

TEST_F(SoftmaxFixture, LargeValuesDoNotOverflow) {
  x = {1e30f, 1e30f, -1e30f, 0, -2000, -2000, -2000, -2000};
  ops::softmax_forward(ctx, args);
  EXPECT_EQ(y, (std::vector<float>{0.5f, 0.5f, 0, 0, 0.25f, 0.25f, 0.25f, 0.25f}));
}

TEST(Softmax, RowsThatBeginWithManyMaskedValues) {
  // Longer than one block, −inf up to the last elements, as attention masks make them.
  constexpr int64_t kColumns = 3000;
  std::vector<float> x(kColumns, -kInfinity), y(kColumns, -1.0f);
  x[2998] = x[2999] = -5.0f;
  ops::softmax_forward(Context{}, {.x = Tensor::contiguous(x.data(), DType::f32, {1, kColumns}),
                                   .y = Tensor::contiguous(y.data(), DType::f32, {1, kColumns})});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[2998], 0.5f);
  EXPECT_EQ(std::accumulate(y.begin(), y.end(), 0.0f), 1.0f);
}

TEST_F(SoftmaxFixture, NotANumberStaysInItsRow) {
  x[1] = std::numeric_limits<float>::quiet_NaN();
  ops::softmax_forward(ctx, args);
  for (size_t j = 0; j < 4; ++j) EXPECT_TRUE(std::isnan(y[j]));
  EXPECT_EQ(y[4], 0.25f);
  x[1] = kInfinity;
  ops::softmax_forward(ctx, args);
  EXPECT_TRUE(std::isnan(y[1]));
}

TEST_F(SoftmaxFixture, BadArgumentsAreNamedAndNothingIsWritten) {
  const auto refuse = [&](auto change, const char* text) {
    ops::SoftmaxForward bad = args;
    change(bad);
    expect_error([&] { ops::softmax_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(y, std::vector<float>(8, -1.0f));
  };
  refuse([](auto& a) { a.x = {}; }, "'x' is missing");
  refuse([](auto& a) { a.x.data = nullptr; }, "null data pointer");
  refuse([](auto& a) { a.x.data = static_cast<std::byte*>(a.x.data) + 2; }, "misaligned");
  refuse([](auto& a) { a.y.sizes[0] = 1; }, "'y' has the wrong shape");
  refuse([](auto& a) { a.y.dtype = DType::bf16; }, "'y' has the wrong type");
  refuse([](auto& a) { a.y.data = static_cast<std::byte*>(a.x.data) + 4; }, "'y' overlaps 'x'");
  refuse([](auto& a) { a.scale = kInfinity; }, "'scale' is not finite");
}

}  // namespace
}  // namespace tigon::test
