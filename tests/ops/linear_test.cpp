#include "tigon/ops/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

struct LinearFixture : testing::Test {
  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, weight = {1, 0, 0, 0, 1, 1}, bias = {10, 20};
  std::vector<float> y = std::vector<float>(4, -1.0f);
  ops::LinearForward args{.x = Tensor::contiguous(x.data(), DType::f32, {2, 3}),
                          .weight = Tensor::contiguous(weight.data(), DType::f32, {2, 3}),
                          .bias = Tensor::contiguous(bias.data(), DType::f32, {2}),
                          .y = Tensor::contiguous(y.data(), DType::f32, {2, 2})};
};

TEST_F(LinearFixture, MultipliesAndAddsTheBias) {
  ops::linear_forward(ctx, args);
  EXPECT_EQ(y, (std::vector<float>{11, 25, 14, 31}));
}

TEST_F(LinearFixture, AddsToWhatIsThere) {
  y = {100, 200, 300, 400};
  args.bias = {};
  args.accumulate_y = true;
  ops::linear_forward(ctx, args);
  EXPECT_EQ(y, (std::vector<float>{101, 205, 304, 411}));
  args.bias = Tensor::contiguous(bias.data(), DType::f32, {2});
  expect_error([&] { ops::linear_forward(ctx, args); }, ErrorCode::invalid_argument, "with the first product");
}

TEST_F(LinearFixture, ReadsRepeatedRows) {
  args.x.strides[0] = 0;  // the same row twice: a broadcast view
  ops::linear_forward(ctx, args);
  EXPECT_EQ(y, (std::vector<float>{11, 25, 11, 25}));
}

TEST_F(LinearFixture, AnEmptySumIsTheBias) {
  args.x.sizes[1] = args.weight.sizes[1] = 0;
  ops::linear_forward(ctx, args);
  EXPECT_EQ(y, (std::vector<float>{10, 20, 10, 20}));
}

TEST_F(LinearFixture, WorksOnNoRows) {
  args.x.sizes[0] = args.y.sizes[0] = 0;
  ops::linear_forward(ctx, args);
  EXPECT_EQ(y, std::vector<float>(4, -1.0f));
}

TEST_F(LinearFixture, NotANumberStaysInItsRow) {
  x[0] = std::numeric_limits<float>::quiet_NaN();
  ops::linear_forward(ctx, args);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[2], 14);
  EXPECT_EQ(y[3], 31);
}

TEST_F(LinearFixture, GradientsAddToWhatIsThere) {
  std::vector<float> dy = {1, 2, 3, 4}, dx(6, 100.0f), dweight(6, 100.0f), dbias(2, 100.0f);
  ops::LinearBackward back{.dy = Tensor::contiguous(dy.data(), DType::f32, {2, 2}),
                           .x = args.x,
                           .weight = args.weight,
                           .dx = Tensor::contiguous(dx.data(), DType::f32, {2, 3}),
                           .dweight = Tensor::contiguous(dweight.data(), DType::f32, {2, 3}),
                           .dbias = Tensor::contiguous(dbias.data(), DType::f32, {2}),
                           .accumulate_dx = true,
                           .accumulate_dweight = true};
  ops::linear_backward(ctx, back);
  EXPECT_EQ(dx, (std::vector<float>{101, 102, 102, 103, 104, 104}));
  EXPECT_EQ(dweight, (std::vector<float>{113, 117, 121, 118, 124, 130}));
  EXPECT_EQ(dbias, (std::vector<float>{104, 106}));
}

TEST(Linear, TooLittleScratchWritesNoneOfTheGradients) {
  // One token: dweight needs far more than dx, which is formed first.
  constexpr int64_t kIn = 512, kOut = 256;
  std::vector<f16> dy(kOut, f16(1.0f)), x(kIn, f16(1.0f)), weight(kIn * kOut, f16(1.0f));
  std::vector<f16> dx(kIn, f16(7.0f)), dweight(kIn * kOut, f16(7.0f)), dbias(kOut, f16(7.0f));
  const auto view = [](std::vector<f16>& v, std::initializer_list<int64_t> sizes) {
    return Tensor::contiguous(v.data(), DType::f16, sizes);
  };
  const ops::LinearBackward back{.dy = view(dy, {1, kOut}),
                                 .x = view(x, {1, kIn}),
                                 .weight = view(weight, {kOut, kIn}),
                                 .dx = view(dx, {1, kIn}),
                                 .dweight = view(dweight, {kOut, kIn}),
                                 .dbias = view(dbias, {kOut}),
                                 .accumulate_dx = true,
                                 .accumulate_dweight = true};
  StackArena measuring = StackArena::measuring_arena();
  ops::linear_backward({.threads = 1, .memory = &measuring}, back);
  std::vector<std::byte> memory(static_cast<size_t>(measuring.bytes_needed()));
  for (size_t bytes = 0; bytes + 512 < memory.size(); bytes += 4096) {
    StackArena little(memory.data(), static_cast<int64_t>(bytes));
    expect_error([&] { ops::linear_backward({.threads = 1, .memory = &little}, back); }, ErrorCode::out_of_memory,
                 "the scratch memory is too small");
    ASSERT_EQ(static_cast<float>(dx[0]), 7.0f) << bytes;
    ASSERT_EQ(static_cast<float>(dweight[0]), 7.0f) << bytes;
    ASSERT_EQ(static_cast<float>(dbias[0]), 7.0f) << bytes;
  }
  StackArena enough(memory.data(), static_cast<int64_t>(memory.size()));
  ops::linear_backward({.threads = 1, .memory = &enough}, back);
  EXPECT_EQ(static_cast<float>(dx[0]), 7.0f + kOut);
  EXPECT_EQ(static_cast<float>(dweight[0]), 8.0f);
  EXPECT_EQ(static_cast<float>(dbias[0]), 8.0f);
}

TEST_F(LinearFixture, ComputesOnlyTheGradientsAskedFor) {
  std::vector<float> dy = {1, 2, 3, 4}, dbias(2);
  // Neither x nor weight is needed for dbias.
  ops::linear_backward(ctx, {.dy = Tensor::contiguous(dy.data(), DType::f32, {2, 2}),
                             .dbias = Tensor::contiguous(dbias.data(), DType::f32, {2})});
  EXPECT_EQ(dbias, (std::vector<float>{4, 6}));
}

TEST_F(LinearFixture, SumsSixteenBitGradientsBeforeRounding) {
  // 1 + 512·2⁻¹⁰ in bf16: added one at a time, each small term would be rounded away.
  constexpr int64_t kTokens = 513;
  std::vector<bf16> dy(kTokens, bf16(0x1p-10f)), ones(kTokens, bf16(1.0f)), dweight(1), dbias(1);
  dy[0] = bf16(1.0f);
  ops::linear_backward(ctx, {.dy = Tensor::contiguous(dy.data(), DType::bf16, {kTokens, 1}),
                             .x = Tensor::contiguous(ones.data(), DType::bf16, {kTokens, 1}),
                             .dweight = Tensor::contiguous(dweight.data(), DType::bf16, {1, 1}),
                             .dbias = Tensor::contiguous(dbias.data(), DType::bf16, {1})});
  EXPECT_EQ(static_cast<float>(dweight[0]), 1.5f);
  EXPECT_EQ(static_cast<float>(dbias[0]), 1.5f);
}

TEST_F(LinearFixture, BadArgumentsAreNamedAndNothingIsWritten) {
  const auto refuse = [&](auto change, const char* text) {
    ops::LinearForward bad = args;
    change(bad);
    expect_error([&] { ops::linear_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(y, std::vector<float>(4, -1.0f));
  };
  refuse([](auto& a) { a.x = {}; }, "'x' is missing");
  refuse([](auto& a) { a.x.rank = 1; }, "'x' has the wrong shape");
  refuse([](auto& a) { a.x.data = nullptr; }, "null data pointer");
  refuse([](auto& a) { a.x.data = static_cast<std::byte*>(a.x.data) + 1; }, "misaligned");
  refuse([](auto& a) { a.x.dtype = DType::i32; }, "'x' has the wrong type");
  refuse([](auto& a) { a.weight.sizes[1] = 2; }, "'weight' has the wrong shape");
  refuse([](auto& a) { a.weight.dtype = DType::f16; }, "'weight' has the wrong type");
  refuse([](auto& a) { a.weight.strides[1] = 2; }, "gap between neighbouring elements");
  refuse([](auto& a) { a.bias.sizes[0] = 3; }, "'bias' has the wrong shape");
  refuse([](auto& a) { a.y.sizes[1] = 3; }, "'y' has the wrong shape");
  refuse([](auto& a) { a.y.strides[0] = 1; }, "share memory");
  refuse([](auto& a) { a.y.data = a.x.data; }, "'y' overlaps 'x'");
  const auto refuse_backward = [&](const ops::LinearBackward& bad, const char* text) {
    expect_error([&] { ops::linear_backward(ctx, bad); }, ErrorCode::invalid_argument, text);
  };
  const auto two_of = [](std::vector<float>& data) { return Tensor::contiguous(data.data(), DType::f32, {2}); };
  std::vector<float> other(6);
  const Tensor apart = Tensor::contiguous(other.data(), DType::f32, {2, 3});
  // dweight is formed from x after dx was written, dbias after both.
  refuse_backward({.dy = args.y, .x = args.x, .weight = args.weight, .dx = args.x, .dweight = apart},
                  "'dx' overlaps 'x'");
  refuse_backward({.dy = args.y, .x = args.x, .dweight = apart, .dbias = two_of(x)}, "'dbias' overlaps 'x'");
  refuse_backward({.dy = args.y, .weight = args.weight, .dx = apart, .dbias = two_of(weight)},
                  "'dbias' overlaps 'weight'");
  expect_error([&] { ops::linear_backward(ctx, {.dy = args.y, .dx = args.x}); }, ErrorCode::invalid_argument,
               "'weight' is missing");
  expect_error([&] { ops::linear_backward(ctx, {.dy = args.y, .dweight = args.weight}); }, ErrorCode::invalid_argument,
               "'x' is missing");
}

}  // namespace
}  // namespace tigon::test
