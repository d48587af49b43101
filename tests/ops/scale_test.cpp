#include "tigon/ops/scale.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

struct ScaleFixture : testing::Test {
  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> x = {1, -2, 3, 4, 0, 6};
  float factor = 0.5f;
  ops::Scale args{.x = Tensor::contiguous(x.data(), DType::f32, {2, 3}),
                  .factor = Tensor::contiguous(&factor, DType::f32, {1})};
};

TEST_F(ScaleFixture, MultipliesInPlace) {
  ops::scale(ctx, args);
  EXPECT_EQ(x, (std::vector<float>{0.5f, -1, 1.5f, 2, 0, 3}));
}

// 16-bit values times 1 are the same values; but a NaN's bits need not survive a multiplication.
TEST_F(ScaleFixture, OneLeavesEveryBit) {
  factor = 1.0f;
  std::vector<uint16_t> bits = {0x7f81, 0xffff, 0x0001, 0x8000};
  const std::vector<uint16_t> before = bits;
  args.x = Tensor::contiguous(bits.data(), DType::bf16, {4});
  ops::scale(ctx, args);
  EXPECT_EQ(bits, before);
}

TEST_F(ScaleFixture, NaNAndInfinityOfTheFactorShow) {
  factor = std::numeric_limits<float>::infinity();
  ops::scale(ctx, args);
  EXPECT_EQ(x[0], factor);
  EXPECT_NE(x[4], x[4]);  // 0·∞
}

TEST_F(ScaleFixture, BadArgumentsAreNamedAndNothingIsWritten) {
  const std::vector<float> before = x;
  const auto refuse = [&](auto change, const char* text) {
    ops::Scale bad = args;
    change(bad);
    expect_error([&] { ops::scale(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(x, before);
  };
  refuse([](auto& bad) { bad.x = {}; }, "'x' is missing");
  refuse([](auto& bad) { bad.x.dtype = DType::i32; }, "'x' has the wrong type");
  refuse([](auto& bad) { bad.x.strides[0] = 4; }, "'x' has gaps");
  refuse([](auto& bad) { bad.factor = {}; }, "'factor' is missing");
  refuse([](auto& bad) { bad.factor.dtype = DType::bf16; }, "'factor' has the wrong type");
  refuse([](auto& bad) { bad.factor = bad.x.reshape({6}).slice(0, 0, 1); }, "'x' overlaps 'factor'");
}

}  // namespace
}  // namespace tigon::test
