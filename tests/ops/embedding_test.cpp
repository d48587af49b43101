#include "tigon/ops/embedding.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

struct EmbeddingFixture : testing::Test {
  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<int32_t> ids = {2, 0, 2};
  std::vector<float> weight = {1, 2, 3, 4, 5, 6}, y = std::vector<float>(6, -1.0f);
  ops::EmbeddingForward forward{.ids = Tensor::contiguous(ids.data(), DType::i32, {3}),
                                .weight = Tensor::contiguous(weight.data(), DType::f32, {3, 2}),
                                .y = Tensor::contiguous(y.data(), DType::f32, {3, 2})};
  std::vector<float> dy = {1, 10, 2, 20, 4, 40}, dweight = std::vector<float>(6, 7.0f);
  ops::EmbeddingBackward backward{.ids = forward.ids,
                                  .dy = Tensor::contiguous(dy.data(), DType::f32, {3, 2}),
                                  .dweight = Tensor::contiguous(dweight.data(), DType::f32, {3, 2})};
};

TEST_F(EmbeddingFixture, CopiesRowsByShortIds) {
  ops::embedding_forward(ctx, forward);
  EXPECT_EQ(y, (std::vector<float>{5, 6, 1, 2, 5, 6}));
}

TEST_F(EmbeddingFixture, SumsTheTokensOfARowAndClearsTheOthers) {
  ops::embedding_backward(ctx, backward);
  EXPECT_EQ(dweight, (std::vector<float>{2, 20, 0, 0, 5, 50}));
}

TEST_F(EmbeddingFixture, TablesWithoutColumnsStillHaveSizesThatCanBeCounted) {
  backward.dy.sizes[1] = backward.dweight.sizes[1] = 0;
  ops::embedding_backward(ctx, backward);
  EXPECT_EQ(dweight, std::vector<float>(6, 7.0f));
  backward.dweight.sizes[0] = int64_t{1} << 60;  // eight bytes of scratch for each row would be 2^63
  backward.dweight.strides[0] = 0;
  expect_error([&] { ops::embedding_backward(ctx, backward); }, ErrorCode::invalid_argument,
               "'dweight' has impossible sizes");
}

TEST_F(EmbeddingFixture, AccumulatesOntoWhatIsThere) {
  backward.accumulate_dweight = true;
  backward.scale = 2;
  ops::embedding_backward(ctx, backward);
  EXPECT_EQ(dweight, (std::vector<float>{11, 47, 7, 7, 17, 107}));
}

TEST_F(EmbeddingFixture, SumsInF32WhateverTheType) {
  // 1 + 2^-9 four times: in bf16 each small term would vanish, their sum does not.
  std::vector<int32_t> same = {1, 1, 1, 1, 1};
  std::vector<bf16> tokens;
  for (const float value : {1.0f, 0x1p-9f, 0x1p-9f, 0x1p-9f, 0x1p-9f}) tokens.push_back(bf16(value));
  std::vector<bf16> narrow(2, bf16(9.0f));
  std::vector<float> wide(2, 9.0f);
  backward.ids = Tensor::contiguous(same.data(), DType::i32, {5});
  backward.dy = Tensor::contiguous(tokens.data(), DType::bf16, {5, 1});
  backward.dweight = Tensor::contiguous(narrow.data(), DType::bf16, {2, 1});
  ops::embedding_backward(ctx, backward);
  EXPECT_EQ(static_cast<float>(narrow[0]), 0.0f);
  EXPECT_EQ(static_cast<float>(narrow[1]), 1.0f + 0x1p-7f);
  backward.dweight = Tensor::contiguous(wide.data(), DType::f32, {2, 1});
  ops::embedding_backward(ctx, backward);
  EXPECT_EQ(wide, (std::vector<float>{0, 1.0f + 0x1p-7f}));
}

TEST_F(EmbeddingFixture, OneCrowdedRowHasTheSameBitsForAnyThreadCount) {
  constexpr int64_t kTokens = 3000, kHidden = 1500;
  std::vector<int64_t> crowd(kTokens);
  std::vector<float> gradient(kTokens * kHidden);
  for (int64_t i = 0; i < kTokens; ++i) crowd[static_cast<size_t>(i)] = i % 10 == 0 ? i % 7 : 3;
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>((i * 2654435761u) % 1000003) * 1e-3f;
  backward.ids = Tensor::contiguous(crowd.data(), DType::i64, {kTokens});
  backward.dy = Tensor::contiguous(gradient.data(), DType::f32, {kTokens, kHidden});
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    std::vector<float> sum(8 * kHidden);
    backward.dweight = Tensor::contiguous(sum.data(), DType::f32, {8, kHidden});
    ctx.threads = threads;
    ops::embedding_backward(ctx, backward);
    if (first.empty()) first = sum;
    EXPECT_EQ(first, sum) << threads << " threads";
  }
}

TEST_F(EmbeddingFixture, BadArgumentsAreNamedAndNothingIsWritten) {
  const auto refuse = [&](auto change, const char* text) {
    ops::EmbeddingForward bad = forward;
    change(bad);
    expect_error([&] { ops::embedding_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(y, std::vector<float>(6, -1.0f));
  };
  refuse([](auto& a) { a.ids = {}; }, "'ids' is missing");
  refuse([](auto& a) { a.ids.rank = 2; }, "'ids' has the wrong shape");
  refuse([](auto& a) { a.ids.dtype = DType::f32; }, "'ids' has the wrong type");
  refuse([](auto& a) { a.ids.strides[0] = 0; }, "'ids' has gaps");
  refuse([](auto& a) { a.ids.data = nullptr; }, "null data pointer");
  refuse([](auto& a) { a.weight.rank = 3; }, "'weight' has the wrong shape");
  refuse([](auto& a) { a.weight.dtype = DType::i32; }, "'weight' has the wrong type");
  refuse([](auto& a) { a.weight.data = static_cast<std::byte*>(a.weight.data) + 2; }, "misaligned");
  refuse([](auto& a) { a.y.sizes[0] = 2; }, "'y' has the wrong shape");
  refuse([](auto& a) { a.y.dtype = DType::bf16; }, "'y' has the wrong type");
  refuse([](auto& a) { a.y.data = a.weight.data; }, "'y' overlaps 'weight'");
  refuse([](auto& a) { a.scale = std::numeric_limits<double>::infinity(); }, "'scale' is not finite");
  refuse([](auto& a) { a.weight.sizes[0] = 2; }, "'ids' is out of range at position 0; expected 0 to 1, got 2");
  ids[1] = -1;
  refuse([](auto&) {}, "'ids' is out of range at position 1");
  expect_error([&] { ops::embedding_backward(ctx, backward); }, ErrorCode::invalid_argument, "out of range");
  EXPECT_EQ(dweight, std::vector<float>(6, 7.0f));
}

TEST_F(EmbeddingFixture, WorksOnNoTokens) {
  backward.ids.sizes[0] = backward.dy.sizes[0] = 0;
  ops::embedding_backward(ctx, backward);
  EXPECT_EQ(dweight, std::vector<float>(6, 0.0f));
}

}  // namespace
}  // namespace tigon::test
