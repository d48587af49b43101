#include "tigon/ops/rmsnorm.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

struct RmsnormFixture : testing::Test {
  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> x = std::vector<float>(12, 1.0f), y = std::vector<float>(12, -1.0f), weight = {1, 2, 3, 4};
  ops::RmsnormForward args{.x = Tensor::contiguous(x.data(), DType::f32, {3, 4}),
                           .weight = Tensor::contiguous(weight.data(), DType::f32, {4}),
                           .y = Tensor::contiguous(y.data(), DType::f32, {3, 4})};
};

TEST_F(RmsnormFixture, NormalisesEachRow) {
  args.eps = 0;
  ops::rmsnorm_forward(ctx, args);
  EXPECT_EQ(y, (std::vector<float>{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST_F(RmsnormFixture, BadArgumentsAreNamedAndNothingIsWritten) {
  const auto refuse = [&](auto change, const char* text) {
    ops::RmsnormForward bad = args;
    change(bad);
    expect_error([&] { ops::rmsnorm_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(y, std::vector<float>(12, -1.0f));
  };
  refuse([](auto& a) { a.x = {}; }, "'x' is missing");
  refuse([](auto& a) { a.x.rank = 1; }, "'x' has the wrong shape");
  refuse([](auto& a) { a.x.dtype = DType::i64; }, "'x' has the wrong type");
  refuse([](auto& a) { a.x.dtype = static_cast<DType>(99); }, "unknown dtype");
  refuse([](auto& a) { a.x.data = nullptr; }, "null data pointer");
  refuse([](auto& a) { a.x.data = static_cast<std::byte*>(a.x.data) + 1; }, "misaligned");
  refuse([](auto& a) { a.x.sizes[0] = -1; }, "negative or overflows");
  refuse([](auto& a) { a.x.strides[1] = 2; }, "gap between neighbouring elements");
  refuse([](auto& a) { a.weight.dtype = DType::bf16; }, "'weight' has the wrong type; expected f32, got bf16");
  refuse([](auto& a) { a.weight.sizes[0] = 3; }, "expected [4] (hidden of x), got [3]");
  refuse([](auto& a) { a.y.strides[0] = 0; }, "share memory");
  refuse([](auto& a) { a.y.data = static_cast<std::byte*>(a.x.data) + 16; }, "'y' overlaps 'x'");
  refuse([](auto& a) { a.rstd = Tensor::contiguous(a.weight.data, DType::f32, {3}); }, "'rstd' overlaps 'weight'");
  refuse([](auto& a) { a.eps = -1; }, "'eps' is out of range");
  refuse([](auto& a) { a.casting = static_cast<ops::NormCasting>(7); }, "'casting' is out of range");
}

TEST_F(RmsnormFixture, AContextThatMakesNoSenseIsRefused) {
  const auto refuse = [&](auto change, const char* text) {
    Context bad = ctx;
    change(bad);
    expect_error([&] { ops::rmsnorm_forward(bad, args); }, ErrorCode::invalid_argument, text);
  };
  refuse([](auto& c) { c.threads = -1; }, "'threads' is out of range; expected 0 to 4096, got -1");
  refuse([](auto& c) { c.threads = 1 << 30; }, "'threads' is out of range");
  refuse([](auto& c) { c.device.kind = static_cast<DeviceKind>(7); }, "'device.kind' is out of range");
}

TEST_F(RmsnormFixture, WorksInPlaceAndOnNoRows) {
  args.y = args.x;
  ops::rmsnorm_forward(ctx, args);
  EXPECT_NEAR(x[3], 4.0f, 1e-5f);
  args.x.sizes[0] = args.y.sizes[0] = 0;
  ops::rmsnorm_forward(ctx, args);
  // One row, whose distance to the next is nobody's.
  x.assign(12, 1.0f);
  args.x.sizes[0] = args.y.sizes[0] = 1;
  args.y.strides[0] = 999;
  ops::rmsnorm_forward(ctx, args);
  EXPECT_NEAR(x[3], 4.0f, 1e-5f);
  // No columns, with the strides that a product of sizes gives: nothing is shared, because nothing is there.
  args.weight = {};
  for (Tensor* t : {&args.x, &args.y}) {
    t->sizes[0] = 3;
    t->sizes[1] = t->strides[0] = 0;
  }
  ops::rmsnorm_forward(ctx, args);
}

TEST_F(RmsnormFixture, BackwardTwiceGivesTheSameAndInPlaceTheSameBits) {
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.3f * static_cast<float>(i) - 1.0f;
  std::vector<float> rstd(3), dy = {1, -1, 2, 0, 3, 1, -2, 1, 0, 1, 1, 1}, dx(12), dweight(4);
  args.rstd = Tensor::contiguous(rstd.data(), DType::f32, {3});
  ops::rmsnorm_forward(ctx, args);
  ops::RmsnormBackward backward{.dy = Tensor::contiguous(dy.data(), DType::f32, {3, 4}),
                                .x = args.x,
                                .weight = args.weight,
                                .rstd = args.rstd,
                                .dx = Tensor::contiguous(dx.data(), DType::f32, {3, 4}),
                                .dweight = Tensor::contiguous(dweight.data(), DType::f32, {4})};
  ops::rmsnorm_backward(ctx, backward);
  const auto dx_once = dx, dweight_once = dweight;
  ops::rmsnorm_backward(ctx, backward);
  EXPECT_EQ(dx, dx_once);
  EXPECT_EQ(dweight, dweight_once);
  backward.dx = backward.dy;
  ops::rmsnorm_backward(ctx, backward);
  EXPECT_EQ(dy, dx_once);
  EXPECT_EQ(dweight, dweight_once);
}

// y does not change with the size of x, so dx falls as x grows: at every size, as long as f32 holds the squares.
TEST_F(RmsnormFixture, GradientsOfLargeAndSmallRowsKeepBothTerms) {
  std::vector<float> rstd(3), dy = {1, -1, 2, 0, 3, 1, -2, 1, 0, 1, 1, 1}, dx(12);
  args.rstd = Tensor::contiguous(rstd.data(), DType::f32, {3});
  args.eps = 0;
  const auto gradient = [&](float size) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = size * (0.3f * static_cast<float>(i) - 1.0f);
    ops::rmsnorm_forward(ctx, args);
    ops::rmsnorm_backward(ctx, {.dy = Tensor::contiguous(dy.data(), DType::f32, {3, 4}),
                                .x = args.x,
                                .weight = args.weight,
                                .rstd = args.rstd,
                                .dx = Tensor::contiguous(dx.data(), DType::f32, {3, 4})});
    return dx;
  };
  const auto plain = gradient(1.0f);
  for (const float size : {0x1p-50f, 0x1p-40f, 0x1p40f, 0x1p50f, 0x1p58f}) {
    const auto scaled = gradient(size);
    for (size_t i = 0; i < scaled.size(); ++i) EXPECT_NEAR(scaled[i] * size, plain[i], 1e-5f) << size << " at " << i;
  }
}

}  // namespace
}  // namespace tigon::test
