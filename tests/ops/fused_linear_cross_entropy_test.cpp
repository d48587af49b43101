#include "tigon/ops/fused_linear_cross_entropy.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/unfused.hpp"

namespace tigon::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A small problem in any storage type, with every gradient.
template <class T>
struct Problem {
  int64_t tokens, hidden, vocab;
  std::vector<T> x, weight, dx;
  std::vector<int64_t> target;
  std::vector<T> dweight;
  std::vector<float> dweight_f32;
  float loss = -7;

  Problem(int64_t n, int64_t h, int64_t v)
      : tokens(n),
        hidden(h),
        vocab(v),
        x(random<T>(n * h, 0, 1.0)),
        weight(random<T>(v * h, 1, 1.0 / std::sqrt(static_cast<double>(h)))),
        dx(static_cast<size_t>(n * h), T(7.0f)),
        target(static_cast<size_t>(n)),
        dweight(static_cast<size_t>(v * h), T(7.0f)),
        dweight_f32(static_cast<size_t>(v * h), 7.0f) {
    for (int64_t i = 0; i < n; ++i) target[static_cast<size_t>(i)] = (i * 7) % v;
  }

  template <class E>
  static std::vector<E> random(int64_t count, uint32_t tensor, double deviation) {
    const RandomStream stream{.seed = 3, .step = 0, .tensor = tensor};
    std::vector<E> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(E(static_cast<float>(deviation * stream.normal(static_cast<uint64_t>(i)))));
    }
    return values;
  }

  ops::FusedLinearCrossEntropyForward args() {
    constexpr DType dtype = dtype_of<T>();
    return {.x = Tensor::contiguous(x.data(), dtype, {tokens, hidden}),
            .weight = Tensor::contiguous(weight.data(), dtype, {vocab, hidden}),
            .target = Tensor::contiguous(target.data(), DType::i64, {tokens}),
            .out = {.loss = Tensor::contiguous(&loss, DType::f32, {1})},
            .dx = Tensor::contiguous(dx.data(), dtype, {tokens, hidden}),
            .dweight = Tensor::contiguous(dweight.data(), dtype, {vocab, hidden})};
  }
  Tensor f32_dweight() { return Tensor::contiguous(dweight_f32.data(), DType::f32, {vocab, hidden}); }

  // The same numbers in f64, through the reference.
  std::vector<double> exact_dweight(const Context& ctx) const {
    std::vector<double> x64, weight64, result(weight.size());
    for (const T& value : x) x64.push_back(static_cast<double>(value));
    for (const T& value : weight) weight64.push_back(static_cast<double>(value));
    auto targets = target;
    ops::fused_linear_cross_entropy_forward(
        ctx, {.x = Tensor::contiguous(x64.data(), DType::f64, {tokens, hidden}),
              .weight = Tensor::contiguous(weight64.data(), DType::f64, {vocab, hidden}),
              .target = Tensor::contiguous(targets.data(), DType::i64, {tokens}),
              .dweight = Tensor::contiguous(result.data(), DType::f64, {vocab, hidden})});
    return result;
  }
};

template <class T>
double distance(const std::vector<T>& got, const std::vector<double>& exact) {
  double squares = 0;
  for (size_t i = 0; i < got.size(); ++i) squares += std::pow(static_cast<double>(got[i]) - exact[i], 2);
  return std::sqrt(squares);
}

struct FusedLinearCrossEntropy : testing::Test {
  Ledger ledger;
  HeapArena heap{&ledger};
  Context ctx{.memory = &heap};
};

TEST_F(FusedLinearCrossEntropy, TargetsOutOfRangeAreRefusedBeforeAnythingIsWritten) {
  Problem<float> p(5, 4, 6);
  for (const int64_t bad : {int64_t{6}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    p.target[3] = bad;
    expect_error([&] { ops::fused_linear_cross_entropy_forward(ctx, p.args()); }, ErrorCode::invalid_argument,
                 "'target' is out of range at position 3");
    EXPECT_EQ(p.loss, -7);
    EXPECT_EQ(p.dx, std::vector<float>(20, 7.0f));
    EXPECT_EQ(p.dweight, std::vector<float>(24, 7.0f));
  }
}

TEST_F(FusedLinearCrossEntropy, FrozenBackboneStillGivesTheHeadItsGradient) {
  Problem<float> all(9, 8, 20), head(9, 8, 20);
  ops::fused_linear_cross_entropy_forward(ctx, all.args());
  auto args = head.args();
  args.dx = {};
  ops::fused_linear_cross_entropy_forward(ctx, args);
  EXPECT_EQ(head.dweight, all.dweight);
  EXPECT_EQ(head.dx, std::vector<float>(72, 7.0f));
}

TEST_F(FusedLinearCrossEntropy, FrozenHeadStillGivesTheBackboneItsGradient) {
  Problem<float> all(9, 8, 20), backbone(9, 8, 20);
  ops::fused_linear_cross_entropy_forward(ctx, all.args());
  auto args = backbone.args();
  args.dweight = {};
  ops::fused_linear_cross_entropy_forward(ctx, args);
  EXPECT_EQ(backbone.dx, all.dx);
}

TEST_F(FusedLinearCrossEntropy, LossAloneNeedsNoGradients) {
  Problem<float> all(9, 8, 20), only_loss(9, 8, 20);
  ops::fused_linear_cross_entropy_forward(ctx, all.args());
  auto args = only_loss.args();
  args.dx = args.dweight = {};
  ops::fused_linear_cross_entropy_forward(ctx, args);
  EXPECT_EQ(only_loss.loss, all.loss);
}

TEST_F(FusedLinearCrossEntropy, InputsAreOnlyReadAndASecondCallGivesTheSame) {
  Problem<float> p(9, 8, 20);
  const auto x = p.x, weight = p.weight;
  auto args = p.args();
  args.chunk.tokens = 4;
  ops::fused_linear_cross_entropy_forward(ctx, args);
  const auto dx = p.dx, dweight = p.dweight;
  EXPECT_EQ(p.x, x);
  EXPECT_EQ(p.weight, weight);
  ops::fused_linear_cross_entropy_forward(ctx, args);
  EXPECT_EQ(p.dx, dx);
  EXPECT_EQ(p.dweight, dweight);
}

TEST_F(FusedLinearCrossEntropy, AddsToAnExistingWeightGradient) {
  for (const int64_t chunk : {3, 100}) {
    Problem<float> fresh(9, 8, 20), added(9, 8, 20);
    auto args = fresh.args();
    args.chunk.tokens = chunk;
    ops::fused_linear_cross_entropy_forward(ctx, args);
    args = added.args();
    args.chunk.tokens = chunk;
    args.accumulate_dweight = true;
    ops::fused_linear_cross_entropy_forward(ctx, args);
    for (size_t i = 0; i < fresh.dweight.size(); ++i) EXPECT_NEAR(added.dweight[i], fresh.dweight[i] + 7.0f, 2e-6);
  }
}

TEST_F(FusedLinearCrossEntropy, AccumulatesNothingWhenAllTokensAreIgnored) {
  Problem<float> p(5, 4, 6);
  p.target.assign(5, -100);
  auto args = p.args();
  args.accumulate_dweight = true;
  ops::fused_linear_cross_entropy_forward(ctx, args);
  EXPECT_EQ(p.dweight, std::vector<float>(24, 7.0f));
  EXPECT_EQ(p.dx, std::vector<float>(20, 0.0f));
  EXPECT_EQ(p.loss, 0.0f);
}

TEST_F(FusedLinearCrossEntropy, IgnoredTokensNeverReachTheProducts) {
  // NaN in the rows of ignored tokens: one product with them, even times a zero gradient, would show in dweight.
  for (const int64_t chunk : {3, 100}) {
    Problem<float> p(9, 8, 20);
    for (const size_t i : {0u, 4u, 5u, 8u}) {
      p.target[i] = -100;
      for (size_t k = 0; k < 8; ++k) p.x[i * 8 + k] = kNan;
    }
    auto args = p.args();
    args.chunk.tokens = chunk;
    ops::fused_linear_cross_entropy_forward(ctx, args);
    EXPECT_TRUE(std::isfinite(p.loss));
    for (const float value : p.dweight) EXPECT_TRUE(std::isfinite(value));
    for (size_t k = 0; k < 8; ++k) EXPECT_EQ(p.dx[4 * 8 + k], 0.0f);
  }
}

TEST_F(FusedLinearCrossEntropy, LeavingOutIgnoredTokensChangesNoBitOfTheRest) {
  Problem<float> sparse(8, 8, 20), dense(4, 8, 20);
  for (size_t i = 0; i < 4; ++i) {
    sparse.target[2 * i + 1] = -100;
    dense.target[i] = sparse.target[2 * i];
    for (size_t k = 0; k < 8; ++k) dense.x[i * 8 + k] = sparse.x[2 * i * 8 + k];
  }
  ops::fused_linear_cross_entropy_forward(ctx, sparse.args());
  ops::fused_linear_cross_entropy_forward(ctx, dense.args());
  EXPECT_EQ(sparse.loss, dense.loss);
  EXPECT_EQ(sparse.dweight, dense.dweight);
}

TEST_F(FusedLinearCrossEntropy, NothingTheSizeOfTheLogitsIsAllocated) {
  Problem<float> p(256, 8, 1000);
  const int64_t all_logits = 256 * 1000 * 4;
  auto args = p.args();
  args.chunk.budget_bytes = all_logits / 16;
  ops::fused_linear_cross_entropy_forward(ctx, args);
  EXPECT_GT(ledger.peak_bytes(), all_logits / 32);
  EXPECT_LT(ledger.peak_bytes(), all_logits / 16 + all_logits / 32);
  for (const LedgerEntry& entry : ledger.entries()) EXPECT_LE(entry.bytes, all_logits / 16) << entry.name;
}

TEST_F(FusedLinearCrossEntropy, NothingTheSizeOfTheWeightIsAllocatedForSixteenBitGradients) {
  Problem<bf16> p(64, 32, 3000);
  auto args = p.args();
  args.chunk.tokens = 4;
  ops::fused_linear_cross_entropy_forward({.threads = 1, .memory = &heap}, args);
  EXPECT_GT(ledger.peak_bytes(), 4 * 3000 * 2) << "not even the logits of one chunk";
  for (const LedgerEntry& entry : ledger.entries()) {
    if (entry.name == "flce_products") continue;  // the tiles of one product, the same for any size
    EXPECT_LT(entry.bytes, 3000 * 32 * 2) << entry.name;
  }
}

TEST_F(FusedLinearCrossEntropy, WeightGradientOverManyChunksIsAsExactAsUnfused) {
  // A head that 16-bit sums over 32 chunks would ruin.
  Problem<bf16> chunked(256, 16, 40), whole(256, 16, 40);
  const auto exact = chunked.exact_dweight(ctx);
  ops::unfused::Tape tape;
  auto args = whole.args();
  float one = 1.0f;
  args.dloss = Tensor::contiguous(&one, DType::f32, {1});
  ops::unfused::fused_linear_cross_entropy_forward(ctx, args, tape);
  ops::unfused::fused_linear_cross_entropy_backward(ctx, args, tape);
  const double unfused_error = distance(whole.dweight, exact);

  args = chunked.args();
  args.chunk.tokens = 8;
  ops::fused_linear_cross_entropy_forward(ctx, args);
  EXPECT_LE(distance(chunked.dweight, exact), 1.5 * unfused_error);

  args.dweight = chunked.f32_dweight();
  ops::fused_linear_cross_entropy_forward(ctx, args);
  EXPECT_LE(distance(chunked.dweight_f32, exact), 0.1 * unfused_error) << "f32 has no rounding to speak of";
}

TEST_F(FusedLinearCrossEntropy, LossAddsUpInMoreThanTheStorageType) {
  Problem<bf16> p(2000, 4, 16);
  p.weight.assign(64, bf16(0.0f));
  auto args = p.args();
  args.options.reduction = ops::Reduction::sum;
  ops::fused_linear_cross_entropy_forward(ctx, args);
  EXPECT_NEAR(p.loss, 2000 * std::log(16.0), 2e-3);
}

TEST_F(FusedLinearCrossEntropy, UpstreamGradientScalesEachToken) {
  Problem<float> p(6, 8, 20), ones(6, 8, 20);
  std::vector<float> losses(6), dloss = {1, 0, 2, 0, 0, 0};
  auto args = p.args();
  args.options.reduction = ops::Reduction::none;
  args.out.loss = Tensor::contiguous(losses.data(), DType::f32, {6});
  args.dloss = Tensor::contiguous(dloss.data(), DType::f32, {6});
  ops::fused_linear_cross_entropy_backward(ctx, args);
  EXPECT_EQ(losses, std::vector<float>(6)) << "backward writes no loss";
  auto plain = ones.args();
  plain.options.reduction = ops::Reduction::sum;
  ops::fused_linear_cross_entropy_forward(ctx, plain);
  for (size_t k = 0; k < 8; ++k) {
    EXPECT_NEAR(p.dx[k], ones.dx[k], 1e-6);
    EXPECT_EQ(p.dx[8 + k], 0.0f);
    EXPECT_NEAR(p.dx[16 + k], 2 * ones.dx[16 + k], 2e-6);
  }
}

TEST_F(FusedLinearCrossEntropy, WorksOnNoTokens) {
  Problem<float> p(0, 4, 6);
  ops::fused_linear_cross_entropy_forward(ctx, p.args());
  EXPECT_EQ(p.loss, 0.0f);
  EXPECT_EQ(p.dweight, std::vector<float>(24, 0.0f));
}

TEST_F(FusedLinearCrossEntropy, WorksOnNoFeatures) {
  for (const int64_t chunk : {0, 1}) {
    Problem<bf16> p(4, 0, 6);
    p.target[1] = -100;  // what is left are no neighbours
    auto args = p.args();
    args.chunk.tokens = chunk;
    ops::fused_linear_cross_entropy_forward(ctx, args);
    EXPECT_NEAR(p.loss, std::log(6.0), 1e-6);
  }
}

TEST_F(FusedLinearCrossEntropy, NotANumberInATokenReachesTheLoss) {
  Problem<float> p(5, 4, 6);
  p.x[2] = kNan;
  ops::fused_linear_cross_entropy_forward(ctx, p.args());
  EXPECT_TRUE(std::isnan(p.loss));
}

// Classes that a bias of −inf leaves out may be a whole panel of the lean walk, beside panels of any size.
TEST_F(FusedLinearCrossEntropy, ClassesLeftOutByTheBiasAreNoPanelsScale) {
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  for (const bool smooths : {false, true}) {
    for (const int64_t left_out : {0, 8, 16}) {  // a panel in the front, in the middle, at the end
      Problem<float> lean(6, 4, 24), whole(6, 4, 24);
      std::vector<float> bias(24, -900.0f);
      for (int64_t j = left_out; !smooths && j < left_out + 8; ++j) bias[static_cast<size_t>(j)] = kOut;
      for (Problem<float>* p : {&lean, &whole}) {
        for (size_t i = 0; i < p->target.size(); ++i) p->target[i] = (left_out + 8 + static_cast<int64_t>(i)) % 24;
        auto args = p->args();
        args.bias = Tensor::contiguous(bias.data(), DType::f32, {24});
        args.options.label_smoothing = smooths ? 0.1 : 0.0;
        if (p == &lean) args.chunk = {.budget_bytes = 8 * 4 * 6, .lean = true};
        ops::fused_linear_cross_entropy_forward(ctx, args);
      }
      EXPECT_TRUE(std::isfinite(whole.loss));
      EXPECT_NEAR(lean.loss, whole.loss, 1e-4) << left_out;
      for (size_t i = 0; i < lean.dx.size(); ++i) EXPECT_NEAR(lean.dx[i], whole.dx[i], 1e-4) << left_out;
    }
  }
}

// x and weight are countable, the logits of this chunk, which a query for scratch would multiply out, are not.
TEST_F(FusedLinearCrossEntropy, ChunksThatOverflowAreRefused) {
  MeasureArena measure(ledger);
  const Context on_paper{.memory = &measure};
  constexpr int64_t kHuge = int64_t{1} << 40;
  ops::FusedLinearCrossEntropyForward args{.x = Tensor::contiguous(nullptr, DType::f32, {kHuge, 1}),
                                           .weight = Tensor::contiguous(nullptr, DType::f32, {kHuge, 1}),
                                           .target = Tensor::contiguous(nullptr, DType::i64, {kHuge})};
  ops::fused_linear_cross_entropy_forward(on_paper, args);
  args.chunk.tokens = kHuge;
  expect_error([&] { ops::fused_linear_cross_entropy_forward(on_paper, args); }, ErrorCode::invalid_argument,
               "overflows");
}

TEST(ChunkTokens, FollowsItsRules) {
  const Device cpu{}, gpu{DeviceKind::cuda, 0};
  EXPECT_EQ(ops::chunk_tokens({.tokens = 100}, cpu, 1000, 8, 10, 4), 100);
  EXPECT_EQ(ops::chunk_tokens({.tokens = 100}, cpu, 7, 8, 10, 4), 7);
  // Liger: next_pow2(ceil(4096 / ceil(128256 / 4096))) = next_pow2(128).
  EXPECT_EQ(ops::chunk_tokens({.liger = true}, gpu, 4096, 4096, 128256, 2), 128);
  EXPECT_EQ(ops::chunk_tokens({}, cpu, INT64_MAX, 8, INT64_MAX, 4), 1);
  EXPECT_EQ(ops::chunk_tokens({}, cpu, 1000, 8, 10, 0), 1000) << "a logit without bytes counts as one byte";
  // Everything fits: one chunk.
  EXPECT_EQ(ops::chunk_tokens({}, cpu, 1000, 8, 10, 4), 1000);
  EXPECT_EQ(ops::chunk_tokens({}, cpu, int64_t{1} << 44, 8, 1 << 24, 4), 1);  // logits beyond 63 bits
  // 8192 tokens of 128256 bf16 logits in 256 MiB: 1046, so 1024 in whole tiles, eight chunks.
  EXPECT_EQ(ops::chunk_tokens({}, gpu, 8192, 2048, 128256, 2), 1024);
  // Half of the weight and a sixteenth of the logits are larger than that.
  EXPECT_EQ(ops::chunk_tokens({}, gpu, 4096, 4096, 128256, 2), 2048);
  EXPECT_EQ(ops::chunk_tokens({}, gpu, 32768, 2048, 128256, 2), 2048);
  EXPECT_EQ(ops::chunk_tokens({.budget_bytes = int64_t{256} << 20}, gpu, 32768, 2048, 128256, 2), 1024);
  // Lean: 32 MiB of f32 dx, or an eighth of the tokens.
  EXPECT_EQ(ops::chunk_tokens({.lean = true}, gpu, 8192, 4096, 128256, 2), 2048);
  EXPECT_EQ(ops::chunk_tokens({.lean = true}, gpu, 65536, 4096, 128256, 2), 8192);
  // A quarter of 125 MiB, and 64 MiB of a larger problem.
  EXPECT_EQ(ops::chunk_tokens({}, cpu, 1024, 768, 32000, 4), 256);
  EXPECT_EQ(ops::chunk_tokens({}, cpu, 4096, 2048, 128256, 4), 128);
  // Not even one token fits: one at a time.
  EXPECT_EQ(ops::chunk_tokens({.budget_bytes = 1}, cpu, 50, 8, 100, 4), 1);
  EXPECT_EQ(ops::chunk_tokens({}, cpu, 0, 8, 100, 4), 1);
  for (int64_t tokens = 1; tokens < 3000; tokens += 37) {
    const int64_t chunk = ops::chunk_tokens({.budget_bytes = 400 * 4 * 100}, cpu, tokens, 8, 100, 4);
    EXPECT_GE(chunk, 1);
    EXPECT_LE(chunk, std::min<int64_t>(tokens, 400));
  }
}

TEST_F(FusedLinearCrossEntropy, BadArgumentsAreNamedAndNothingIsWritten) {
  Problem<float> p(5, 4, 6);
  const auto refuse = [&](auto change, const char* text) {
    auto bad = p.args();
    change(bad);
    expect_error([&] { ops::fused_linear_cross_entropy_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(p.loss, -7);
    EXPECT_EQ(p.dx, std::vector<float>(20, 7.0f));
  };
  refuse([](auto& a) { a.x = {}; }, "'x' is missing");
  refuse([](auto& a) { a.x.data = nullptr; }, "null data pointer");
  refuse([](auto& a) { a.x.data = static_cast<std::byte*>(a.x.data) + 1; }, "misaligned");
  refuse([](auto& a) { a.x.rank = 3; }, "'x' has the wrong shape");
  refuse([](auto& a) { a.x.dtype = DType::u8; }, "'x' has the wrong type");
  refuse([](auto& a) { a.weight.sizes[1] = 3; }, "'weight' has the wrong shape");
  refuse([](auto& a) { a.weight.dtype = DType::f16; }, "'weight' has the wrong type");
  refuse([](auto& a) { a.target = {}; }, "'target' is missing");
  refuse([](auto& a) { a.dx.sizes[0] = 4; }, "'dx' has the wrong shape");
  refuse([](auto& a) { a.dx.dtype = DType::bf16; }, "'dx' has the wrong type");
  refuse([](auto& a) { a.dx.data = a.x.data; }, "'dx' overlaps 'x'");
  refuse([](auto& a) { a.dweight.data = a.weight.data; }, "'dweight' overlaps 'weight'");
  refuse([](auto& a) { a.dweight.dtype = DType::i64; }, "'dweight' has the wrong type");
  refuse([](auto& a) { a.dweight.strides[0] = 0; }, "share memory");
  refuse([](auto& a) { a.out.loss.data = a.x.data; }, "'loss' overlaps 'x'");
  refuse([](auto& a) { a.out.loss.data = a.weight.data; }, "'loss' overlaps 'weight'");
  refuse([](auto& a) { a.dloss = a.out.loss; }, "'loss' overlaps 'dloss'");
  refuse(
      [](auto& a) {
        a.bias = Tensor::contiguous(a.dx.data, DType::f32, {6});
        a.dx = {};
        a.out.loss.data = a.bias.data;
      },
      "'loss' overlaps 'bias'");
  refuse([](auto& a) { a.chunk.tokens = -1; }, "'chunk.tokens' is negative");
  refuse([](auto& a) { a.chunk.budget_bytes = -1; }, "'chunk.budget_bytes' is negative");
  refuse([](auto& a) { a.options.softcap = static_cast<double>(kNan); }, "'softcap' is out of range");
  expect_error([&] { ops::fused_linear_cross_entropy_backward(ctx, p.args()); }, ErrorCode::invalid_argument,
               "'dloss' is missing");
}

}  // namespace
}  // namespace tigon::test
