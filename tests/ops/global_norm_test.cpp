#include "tigon/ops/global_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

struct GlobalNormFixture : testing::Test {
  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> a = {3, 0, 0}, b = {0, 4};
  std::vector<Tensor> tensors = {Tensor::contiguous(a.data(), DType::f32, {3}),
                                 Tensor::contiguous(b.data(), DType::f32, {2, 1})};
  float norm = -1, clip = -1;
  ops::GlobalNorm args{.tensors = tensors,
                       .norm = Tensor::contiguous(&norm, DType::f32, {1}),
                       .clip = Tensor::contiguous(&clip, DType::f32, {1}),
                       .max_norm = 1.0};
};

TEST_F(GlobalNormFixture, SpansAllTensors) {
  ops::global_norm(ctx, args);
  EXPECT_EQ(norm, 5.0f);
  EXPECT_NEAR(clip, 0.2f, 1e-6f);
}

TEST_F(GlobalNormFixture, ScaleIsInNormAndClip) {
  args.scale = 0.5;
  args.max_norm = 0;
  ops::global_norm(ctx, args);
  EXPECT_EQ(norm, 2.5f);
  EXPECT_EQ(clip, 0.5f);
}

TEST_F(GlobalNormFixture, NaNAndInfinityShowAndStopTheUpdate) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const double max_norm : {0.0, 1.0}) {
      args.max_norm = max_norm;
      b[1] = bad;
      ops::global_norm(ctx, args);
      EXPECT_FALSE(std::isfinite(norm));
      EXPECT_EQ(clip, 0.0f);
    }
  }
}

TEST_F(GlobalNormFixture, SquaresBeyondF32DoNotOverflow) {
  a[0] = 3e30f;
  b[1] = 4e30f;
  ops::global_norm(ctx, args);
  EXPECT_FLOAT_EQ(norm, 5e30f);
  EXPECT_GT(clip, 0.0f);
}

TEST_F(GlobalNormFixture, TypesMayDiffer) {
  std::vector<bf16> narrow = {bf16(12.0f)};
  tensors.push_back(Tensor::contiguous(narrow.data(), DType::bf16, {1}));
  args.tensors = tensors;
  ops::global_norm(ctx, args);
  EXPECT_EQ(norm, 13.0f);
}

// Tensors of many pieces, of one and of none, some at a time and in any order of calls: the bits of one call for all.
TEST_F(GlobalNormFixture, InPartsTheBitsAreThoseOfOneCall) {
  const std::vector<int64_t> sizes = {5 * ops::kNormPiece + 3, 7, ops::kNormPiece, 0, 2 * ops::kNormPiece - 1, 100003};
  std::vector<std::vector<float>> values;
  std::vector<Tensor> all;
  std::vector<int64_t> first = {0};
  for (const int64_t size : sizes) {
    values.emplace_back();
    for (int64_t i = 0; i < size; ++i) values.back().push_back(std::sin(static_cast<float>(i * 7 + size)) * 1e-3f);
    all.push_back(Tensor::contiguous(values.back().data(), DType::f32, {size}));
    first.push_back(first.back() + ops::norm_pieces({}, size));
  }
  EXPECT_EQ(first.back(), 6 + 1 + 1 + 0 + 2 + 2);
  args.scale = 0.25;
  args.max_norm = 1e-3;
  args.tensors = all;
  ops::global_norm(ctx, args);
  const float norm_of_all = norm, clip_of_all = clip;
  EXPECT_GT(norm_of_all, 0.0f);

  std::vector<double> sums(static_cast<size_t>(first.back()), NAN);
  const Tensor pieces = Tensor::contiguous(sums.data(), DType::f64, {first.back()});
  const std::pair<size_t, size_t> parts[] = {{4, 6}, {0, 1}, {1, 4}};
  for (const auto& [begin, end] : parts) {
    ops::global_norm(ctx, {.tensors = std::span<const Tensor>(all).subspan(begin, end - begin),
                           .pieces = pieces.slice(0, first[begin], first[end])});
  }
  args.tensors = {};
  args.pieces = pieces;
  norm = clip = -1;
  ops::global_norm(ctx, args);
  EXPECT_EQ(norm, norm_of_all);
  EXPECT_EQ(clip, clip_of_all);
}

TEST_F(GlobalNormFixture, PiecesThatDoNotFitAreRefused) {
  std::vector<double> sums(3);
  const auto refuse = [&](ops::GlobalNorm bad, const char* text) {
    expect_error([&] { ops::global_norm(ctx, bad); }, ErrorCode::invalid_argument, text);
  };
  const Tensor two = Tensor::contiguous(sums.data(), DType::f64, {2}),
               three = Tensor::contiguous(sums.data(), DType::f64, {3});
  refuse({.tensors = tensors, .pieces = three}, "'pieces'");
  refuse({.tensors = tensors, .norm = args.norm, .pieces = two}, "either tensors or 'norm'");
  refuse({.pieces = two}, "either tensors or 'norm'");
  refuse({.tensors = tensors, .clip = args.clip, .pieces = two}, "'clip' is given without 'norm'");
  refuse({.tensors = tensors, .pieces = Tensor::contiguous(sums.data(), DType::f32, {2})},
         "'pieces' has the wrong type");
  EXPECT_EQ(norm, -1.0f);
}

TEST_F(GlobalNormFixture, BadArgumentsAreNamedAndNothingIsWritten) {
  const auto refuse = [&](auto change, const char* text) {
    std::vector<Tensor> list = tensors;
    ops::GlobalNorm bad = args;
    bad.tensors = list;
    change(bad, list);
    expect_error([&] { ops::global_norm(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(norm, -1.0f);
    EXPECT_EQ(clip, -1.0f);
  };
  refuse([](auto&, auto& list) { list[1] = {}; }, "'tensors[1]' is missing");
  refuse([](auto&, auto& list) { list[0].data = nullptr; }, "null data pointer");
  refuse([](auto&, auto& list) { list[0].data = static_cast<std::byte*>(list[0].data) + 1; }, "misaligned");
  refuse([](auto&, auto& list) { list[0].dtype = DType::i32; }, "'tensors[0]' has the wrong type");
  refuse([](auto&, auto& list) { list[0].rank = 9; }, "'tensors[0]' has too many dimensions");
  refuse([](auto&, auto& list) { list[0].strides[0] = 2; }, "'tensors[0]' has gaps");
  refuse([](auto& bad, auto&) { bad.norm = {}; }, "'norm' is missing");
  refuse([](auto& bad, auto&) { bad.norm.dtype = DType::bf16; }, "'norm' has the wrong type");
  refuse([](auto& bad, auto&) { bad.clip = bad.norm; }, "'clip' overlaps 'norm'");
  refuse([](auto& bad, auto&) { bad.max_norm = -1; }, "'max_norm' is negative");
  refuse([](auto& bad, auto&) { bad.scale = NAN; }, "'scale' is not finite");
}

}  // namespace
}  // namespace tigon::test
