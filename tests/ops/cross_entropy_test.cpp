#include "tigon/ops/cross_entropy.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct CrossEntropyFixture : testing::Test {
  Ledger ledger;
  HeapArena heap{&ledger};
  Context ctx{.memory = &heap};
  std::vector<float> logits = {1, 2, 3, 4, 0, 0, 0, 0, 4, 3, 2, 1};
  std::vector<float> dlogits = std::vector<float>(12, -7.0f);
  std::vector<int64_t> target = {3, -100, 0}, predicted = {-7, -7, -7};
  float loss = -7, accuracy = -7;
  std::vector<float> lse = std::vector<float>(3, -7.0f);
  ops::CrossEntropyForward args{.logits = Tensor::contiguous(logits.data(), DType::f32, {3, 4}),
                                .target = Tensor::contiguous(target.data(), DType::i64, {3}),
                                .out = {.loss = Tensor::contiguous(&loss, DType::f32, {1}),
                                        .accuracy = Tensor::contiguous(&accuracy, DType::f32, {1}),
                                        .predicted = Tensor::contiguous(predicted.data(), DType::i64, {3}),
                                        .lse = Tensor::contiguous(lse.data(), DType::f32, {3})},
                                .dlogits = Tensor::contiguous(dlogits.data(), DType::f32, {3, 4})};

  ops::CrossEntropyBackward backward(const Tensor& dloss) const {
    return {.dloss = dloss, .logits = args.logits, .target = args.target, .lse = args.out.lse, .dlogits = args.dlogits};
  }
};

TEST_F(CrossEntropyFixture, MatchesTheFormulaByHand) {
  ops::cross_entropy_forward(ctx, args);
  const double expected = std::log(1 + std::exp(-1.0) + std::exp(-2.0) + std::exp(-3.0));
  EXPECT_NEAR(loss, expected, 1e-6);
  EXPECT_EQ(accuracy, 1.0f);
  EXPECT_EQ(predicted, (std::vector<int64_t>{3, -1, 0}));
  EXPECT_NEAR(dlogits[3], 0.5 * (std::exp(-expected) - 1), 1e-7);
  for (size_t j = 4; j < 8; ++j) EXPECT_EQ(dlogits[j], 0.0f) << "an ignored row has no gradient";
}

TEST_F(CrossEntropyFixture, TargetsOutOfRangeAreRefusedBeforeAnythingIsWritten) {
  const auto original = logits;
  for (const int64_t bad : {int64_t{4}, int64_t{-1}, int64_t{-101}, std::numeric_limits<int64_t>::max(),
                            std::numeric_limits<int64_t>::min()}) {
    target[2] = bad;
    expect_error([&] { ops::cross_entropy_forward(ctx, args); }, ErrorCode::invalid_argument,
                 "'target' is out of range at position 2");
    expect_error([&] { ops::cross_entropy_backward(ctx, backward(args.out.loss)); }, ErrorCode::invalid_argument,
                 "'target' is out of range");
    EXPECT_EQ(loss, -7);
    EXPECT_EQ(dlogits, std::vector<float>(12, -7.0f));
    EXPECT_EQ(logits, original);
  }
}

TEST_F(CrossEntropyFixture, IgnoredRowsOfTheLogitsAreUntouchedWithoutGradients) {
  const auto original = logits;
  args.dlogits = {};
  ops::cross_entropy_forward(ctx, args);
  EXPECT_EQ(logits, original);
}

TEST_F(CrossEntropyFixture, GradientMayTakeThePlaceOfTheLogits) {
  ops::cross_entropy_forward(ctx, args);
  const auto apart = dlogits;
  args.dlogits = args.logits;
  ops::cross_entropy_forward(ctx, args);
  EXPECT_EQ(logits, apart);
}

TEST_F(CrossEntropyFixture, ASecondBackwardGivesTheSameResult) {
  ops::cross_entropy_forward(ctx, args);
  float upstream = 0.5f;
  const auto call = backward(Tensor::contiguous(&upstream, DType::f32, {1}));
  ops::cross_entropy_backward(ctx, call);
  const auto first = dlogits;
  ops::cross_entropy_backward(ctx, call);
  EXPECT_EQ(dlogits, first);
}

TEST_F(CrossEntropyFixture, IgnoredTokensDoNotCountWhateverTheirLogits) {
  ops::cross_entropy_forward(ctx, args);
  const float clean = loss;
  for (size_t j = 4; j < 8; ++j) logits[j] = kNan;
  ops::cross_entropy_forward(ctx, args);
  EXPECT_EQ(loss, clean);
  EXPECT_EQ(dlogits[5], 0.0f);
}

TEST_F(CrossEntropyFixture, AllIgnoredGivesZeroNotNan) {
  target = {-100, -100, -100};
  ops::cross_entropy_forward(ctx, args);
  EXPECT_EQ(loss, 0.0f);
  EXPECT_EQ(accuracy, 0.0f);
  EXPECT_EQ(dlogits, std::vector<float>(12, 0.0f));
}

TEST_F(CrossEntropyFixture, TheIgnoreIndexMayBeAClass) {
  target = {3, 2, 0};
  args.options.ignore_index = 2;
  ops::cross_entropy_forward(ctx, args);
  EXPECT_EQ(predicted, (std::vector<int64_t>{3, -1, 0}));
  EXPECT_EQ(dlogits[6], 0.0f);
}

TEST_F(CrossEntropyFixture, TiesGoToTheLowestIndex) {
  logits = {5, 5, 5, 5, 0, 0, 0, 0, 1, 9, 9, 1};
  ops::cross_entropy_forward(ctx, args);
  EXPECT_EQ(predicted, (std::vector<int64_t>{0, -1, 1}));
}

TEST(CrossEntropy, TiesGoToTheLowestIndexAcrossBlocks) {
  constexpr int64_t kClasses = 5000;
  HeapArena heap;
  const Context ctx{.memory = &heap};
  std::vector<float> logits(kClasses, 0.0f);
  logits[1500] = logits[3100] = logits[4999] = 2.0f;
  int64_t target = 0;
  int32_t predicted = -1;
  ops::cross_entropy_forward(ctx, {.logits = Tensor::contiguous(logits.data(), DType::f32, {1, kClasses}),
                                   .target = Tensor::contiguous(&target, DType::i64, {1}),
                                   .out = {.predicted = Tensor::contiguous(&predicted, DType::i32, {1})}});
  EXPECT_EQ(predicted, 1500);
}

TEST_F(CrossEntropyFixture, NanAndInfinityGiveNan) {
  for (const float bad : {kNan, kInfinity}) {
    logits[1] = bad;
    ops::cross_entropy_forward(ctx, args);
    EXPECT_TRUE(std::isnan(loss));
    EXPECT_TRUE(std::isnan(dlogits[0]));
    EXPECT_FALSE(std::isnan(dlogits[8])) << "other rows are not touched";
    EXPECT_GE(predicted[0], 0);
    EXPECT_LT(predicted[0], 4);
  }
}

TEST_F(CrossEntropyFixture, MaskedLogitsHaveNoGradient) {
  logits[0] = -kInfinity;
  ops::cross_entropy_forward(ctx, args);
  EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(dlogits[0], 0.0f);
}

TEST(CrossEntropy, LargeLogitsKeepTheirPrecision) {
  HeapArena heap;
  const Context ctx{.memory = &heap};
  std::vector<float> logits = {60000.0f, 59999.0f}, dlogits(2);
  int64_t target = 0;
  float loss = 0;
  ops::cross_entropy_forward(ctx, {.logits = Tensor::contiguous(logits.data(), DType::f32, {1, 2}),
                                   .target = Tensor::contiguous(&target, DType::i64, {1}),
                                   .out = {.loss = Tensor::contiguous(&loss, DType::f32, {1})},
                                   .dlogits = Tensor::contiguous(dlogits.data(), DType::f32, {1, 2})});
  EXPECT_NEAR(loss, std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(dlogits[1], 1.0 / (1.0 + std::exp(1.0)), 1e-6);
}

// Rows of one and the same value, a mask's or merely a large one: every class has p = 1/V, forward and backward.
template <class T>
void check_even_rows(const Context& ctx) {
  constexpr int64_t kClasses = 8;
  for (const double value : {-1e30, -60000.0, -200.0, 130.0, 12345.678, 1e30}) {
    for (const double smoothing : {0.0, 0.1}) {
      SCOPED_TRACE(testing::Message() << value << ", smoothing " << smoothing);
      std::vector<T> logits(kClasses, static_cast<T>(value)), dlogits(kClasses), loss(1), lse(1), upstream(1, T{1});
      int64_t target = 2;
      const Tensor x = Tensor::contiguous(logits.data(), dtype_of<T>(), {1, kClasses});
      const Tensor y = Tensor::contiguous(&target, DType::i64, {1});
      const Tensor dx = Tensor::contiguous(dlogits.data(), dtype_of<T>(), {1, kClasses});
      const Tensor saved = Tensor::contiguous(lse.data(), dtype_of<T>(), {1});
      const auto expect_even = [&] {
        for (size_t j = 0; j < kClasses; ++j) {
          const double picked = j == 2 ? 1 - smoothing : 0.0;
          EXPECT_NEAR(dlogits[j], 1.0 / kClasses - picked - smoothing / kClasses, 1e-6) << j;
        }
      };
      ops::cross_entropy_forward(ctx,
                                 {.logits = x,
                                  .target = y,
                                  .options = {.label_smoothing = smoothing},
                                  .out = {.loss = Tensor::contiguous(loss.data(), dtype_of<T>(), {1}), .lse = saved},
                                  .dlogits = dx});
      EXPECT_NEAR(loss[0], std::log(kClasses), 1e-6);
      expect_even();
      dlogits.assign(kClasses, T{-7});
      ops::cross_entropy_backward(ctx, {.dloss = Tensor::contiguous(upstream.data(), dtype_of<T>(), {1}),
                                        .logits = x,
                                        .target = y,
                                        .lse = saved,
                                        .options = {.label_smoothing = smoothing},
                                        .dlogits = dx});
      expect_even();
    }
  }
}

TEST(CrossEntropy, EvenRowsStayEvenHoweverLarge) {
  HeapArena heap;
  const Context ctx{.memory = &heap};
  check_even_rows<float>(ctx);
  check_even_rows<double>(ctx);
}

TEST(CrossEntropy, LossesAddUpInMoreThanTheStorageType) {
  // 4096 tokens of ln 2 in bf16 logits: a bf16 sum would stall far below.
  constexpr int64_t kTokens = 4096;
  HeapArena heap;
  const Context ctx{.memory = &heap};
  std::vector<bf16> logits(2 * kTokens, bf16(1.0f));
  std::vector<int64_t> target(kTokens, 0);
  float loss = 0;
  ops::cross_entropy_forward(ctx, {.logits = Tensor::contiguous(logits.data(), DType::bf16, {kTokens, 2}),
                                   .target = Tensor::contiguous(target.data(), DType::i64, {kTokens}),
                                   .options = {.reduction = ops::Reduction::sum},
                                   .out = {.loss = Tensor::contiguous(&loss, DType::f32, {1})}});
  EXPECT_NEAR(loss, kTokens * std::log(2.0), 1e-3);
}

TEST(CrossEntropy, TheTargetEntryIsRoundedOnce) {
  // p = ½ of 2 classes: softmax − 1 = −½ exactly, in f16 as well.
  HeapArena heap;
  const Context ctx{.memory = &heap};
  std::vector<f16> logits(2, f16(3.0f)), dlogits(2);
  int32_t target = 1;
  ops::cross_entropy_forward(ctx, {.logits = Tensor::contiguous(logits.data(), DType::f16, {1, 2}),
                                   .target = Tensor::contiguous(&target, DType::i32, {1}),
                                   .dlogits = Tensor::contiguous(dlogits.data(), DType::f16, {1, 2})});
  EXPECT_EQ(static_cast<float>(dlogits[0]), 0.5f);
  EXPECT_EQ(static_cast<float>(dlogits[1]), -0.5f);
}

TEST_F(CrossEntropyFixture, WorksOnNoTokens) {
  args.logits.sizes[0] = args.dlogits.sizes[0] = args.target.sizes[0] = 0;
  args.out.lse.sizes[0] = args.out.predicted.sizes[0] = 0;
  ops::cross_entropy_forward(ctx, args);
  EXPECT_EQ(loss, 0.0f);
}

TEST_F(CrossEntropyFixture, NeedsNoScratchTheSizeOfTheLogits) {
  ops::cross_entropy_forward(ctx, args);
  EXPECT_LE(ledger.peak_bytes(), align_up(3 * 12)) << "a few bytes per token";
}

TEST_F(CrossEntropyFixture, BadArgumentsAreNamedAndNothingIsWritten) {
  const auto refuse = [&](auto change, const char* text) {
    ops::CrossEntropyForward bad = args;
    change(bad);
    expect_error([&] { ops::cross_entropy_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(dlogits, std::vector<float>(12, -7.0f));
    EXPECT_EQ(loss, -7);
  };
  refuse([](auto& a) { a.logits = {}; }, "'logits' is missing");
  refuse([](auto& a) { a.logits.data = nullptr; }, "null data pointer");
  refuse([](auto& a) { a.logits.data = static_cast<std::byte*>(a.logits.data) + 1; }, "misaligned");
  refuse([](auto& a) { a.logits.dtype = DType::i32; }, "'logits' has the wrong type");
  refuse([](auto& a) { a.logits.rank = 1; }, "'logits' has the wrong shape");
  refuse([](auto& a) { a.logits.sizes[1] = a.dlogits.sizes[1] = 0; }, "there are no classes");
  refuse([](auto& a) { a.target = {}; }, "'target' is missing");
  refuse([](auto& a) { a.target.dtype = DType::f32; }, "'target' has the wrong type");
  refuse([](auto& a) { a.target.sizes[0] = 2; }, "'target' has the wrong shape");
  refuse([](auto& a) { a.target.strides[0] = 0; }, "'target' has gaps");
  refuse([](auto& a) { a.dlogits.dtype = DType::bf16; }, "'dlogits' has the wrong type");
  refuse([](auto& a) { a.dlogits.data = static_cast<std::byte*>(a.logits.data) + 4; }, "'dlogits' overlaps 'logits'");
  refuse([](auto& a) { a.out.loss.dtype = DType::bf16; }, "'loss' has the wrong type");
  refuse([](auto& a) { a.out.loss.sizes[0] = 3; }, "'loss' has the wrong shape");
  refuse([](auto& a) { a.out.predicted.dtype = DType::f32; }, "'predicted' has the wrong type");
  refuse([](auto& a) { a.out.lse.data = a.out.accuracy.data; }, "overlaps");
  refuse([](auto& a) { a.class_weight = a.out.lse; }, "'class_weight' has the wrong shape");
  refuse([](auto& a) { a.options.label_smoothing = 1.5; }, "'label_smoothing' is out of range");
  refuse([](auto& a) { a.options.label_smoothing = static_cast<double>(kNan); }, "'label_smoothing' is out of range");
  refuse([](auto& a) { a.options.z_loss = static_cast<double>(kInfinity); }, "'z_loss' is not finite");
  refuse([](auto& a) { a.options.softcap = -1; }, "'softcap' is out of range");
  refuse([](auto& a) { a.options.softcap = 1e-40; }, "'softcap' is out of range; expected 1e-30 to 1e+30, got 1e-40");
  refuse([](auto& a) { a.options.reduction = static_cast<ops::Reduction>(9); }, "'reduction' is out of range");
  expect_error([&] { ops::cross_entropy_backward(ctx, backward({})); }, ErrorCode::invalid_argument,
               "'dloss' is missing");
}

}  // namespace
}  // namespace tigon::test
