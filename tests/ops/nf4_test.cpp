#include "tigon/ops/nf4.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/dynamic_map.hpp"
#include "backend/nf4_levels.hpp"
#include "ops/expect_error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An array, and what it is in NF4 and back.
struct Nf4Arrays {
  explicit Nf4Arrays(int64_t n)
      : x(static_cast<size_t>(n)),
        back(x.size()),
        codes(static_cast<size_t>(n / 2 + n % 2), 0xee),
        scale_codes(static_cast<size_t>(ops::nf4_blocks(n)), 0xee),
        group_scales(static_cast<size_t>(ops::nf4_groups(n)), -1.0f) {
    const RandomStream random{.seed = 3, .step = 0, .tensor = 1};
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(0.02 * random.normal(i));
  }

  static Tensor bytes(std::vector<uint8_t>& v) {
    return Tensor::contiguous(v.data(), DType::u8, {static_cast<int64_t>(v.size())});
  }
  static Tensor floats(std::vector<float>& v) {
    return Tensor::contiguous(v.data(), DType::f32, {static_cast<int64_t>(v.size())});
  }
  ops::Nf4 nf4() {
    return {.codes = bytes(codes),
            .scale_codes = bytes(scale_codes),
            .group_scales = floats(group_scales),
            .offset = floats(offset)};
  }
  void run() {
    ops::nf4_quantize(ctx, {.x = floats(x), .to = nf4()});
    ops::nf4_dequantize(ctx, {.from = nf4(), .y = floats(back)});
  }
  float scale(size_t block) const {
    return kSignedTables.map[scale_codes[block]] * group_scales[block / ops::kNf4Group] + offset[0];
  }

  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> x, back;
  std::vector<uint8_t> codes, scale_codes;
  std::vector<float> group_scales, offset = {-1};
};

TEST(Nf4, WhatComesBackIsAsNearAsTheLevelsAre) {
  for (const int64_t n : {64, 100, 16384, 50001}) {
    Nf4Arrays a(n);
    a.run();
    for (size_t i = 0; i < a.x.size(); ++i) {
      const float scale = a.scale(i / ops::kNf4Block);
      // Half of the widest step, -1 to -0.696, and what a scale loses in 8 bits.
      ASSERT_LE(std::abs(a.back[i] - a.x[i]), 0.19f * scale) << n << " element " << i;
    }
  }
}

TEST(Nf4, EveryLevelTimesAnExactScaleIsItself) {
  Nf4Arrays a(64);
  for (size_t i = 0; i < a.x.size(); ++i) a.x[i] = kNf4.levels[i % 16] * 0.5f;
  a.run();
  EXPECT_EQ(a.offset[0], 0.5f);
  EXPECT_EQ(a.back, a.x);
  EXPECT_EQ(a.codes[0], 0x01);  // the even element's code is the upper one
  EXPECT_EQ(a.codes[7], 0xef);
}

TEST(Nf4, OfTwoEquallyNearTheLowerIsTaken) {
  Nf4Arrays a(64);
  for (size_t i = 0; i < 15; ++i) {
    a.x[2 * i] = kNf4.middles[i];
    a.x[2 * i + 1] = std::nextafter(kNf4.middles[i], 2.0f);
  }
  a.x[63] = 1.0f;
  a.run();
  for (size_t i = 0; i < 15; ++i) EXPECT_EQ(a.codes[i], i << 4 | (i + 1));
}

TEST(Nf4, ZerosComeBackAsZeros) {
  Nf4Arrays a(20000);
  std::fill(a.x.begin() + 64, a.x.begin() + 192, 0.0f);
  a.run();
  for (size_t i = 64; i < 192; ++i) EXPECT_EQ(a.back[i], 0.0f);
  std::fill(a.x.begin(), a.x.end(), -0.0f);
  a.run();
  EXPECT_EQ(a.offset[0], kNf4Smallest / static_cast<float>(a.scale_codes.size()));  // the last block is not whole
  Nf4Arrays whole(16384);
  std::fill(whole.x.begin(), whole.x.end(), 0.0f);
  whole.run();
  EXPECT_EQ(whole.offset[0], 0.0f);
  EXPECT_EQ(whole.back, whole.x);
}

// A value of s in one of N blocks moves the offset by s/N; elsewhere that is all that a group has to code.
TEST(Nf4, OneHugeValueSpoilsScalesByItsShareInTheMean) {
  Nf4Arrays a(64 * 1024);
  a.x[70] = 1e6f;
  a.run();
  EXPECT_NEAR(a.back[70], 1e6f, 2e4f);
  for (size_t b = 0; b < a.scale_codes.size(); ++b) {
    if (b == 1) continue;
    EXPECT_LE(std::abs(a.scale(b)), b < ops::kNf4Group ? 2e4f : 0.01f * 1e6f / 1024) << b;
  }
  a.x[70] = std::numeric_limits<float>::max();
  a.run();
  for (const float value : a.back) EXPECT_FALSE(std::isnan(value));
}

TEST(Nf4, WhatIsNotFiniteShowsEverywhere) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t place : {size_t{5}, size_t{49999}}) {
      Nf4Arrays a(50000);
      a.x[place] = bad;
      a.run();
      EXPECT_TRUE(std::isnan(a.offset[0]));
      for (const float value : a.back) ASSERT_TRUE(std::isnan(value));
    }
  }
}

TEST(Nf4, BlocksBelowTheNormalRangeAreNearZero) {
  Nf4Arrays a(128);
  std::fill(a.x.begin(), a.x.end(), 1e-40f);
  a.x[100] = 1.0f;
  a.run();
  for (size_t i = 0; i < 64; ++i) EXPECT_LE(std::abs(a.back[i]), 0.01f);
}

TEST(Nf4, TypesAgreeWithF32) {
  Nf4Arrays a(20001);
  for (float& x : a.x) x = static_cast<float>(bf16(x));
  a.run();
  Nf4Arrays b(20001);
  std::vector<bf16> halves(a.x.size());
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = bf16(a.x[i]);
  const Tensor x = Tensor::contiguous(halves.data(), DType::bf16, {20001});
  ops::nf4_quantize(b.ctx, {.x = x, .to = b.nf4()});
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.scale_codes, b.scale_codes);
  EXPECT_EQ(a.group_scales, b.group_scales);
  ops::nf4_dequantize(b.ctx, {.from = b.nf4(), .y = x});
  for (size_t i = 0; i < halves.size(); ++i)
    ASSERT_EQ(static_cast<float>(halves[i]), static_cast<float>(bf16(a.back[i])));
}

// Larger than a cache, where stores go past it: the same elements as in pieces that are not.
TEST(Nf4, StreamedValuesAreTheSame) {
  constexpr int64_t n = (int64_t{1} << 26) + 70, kPiece = int64_t{1} << 20;
  Nf4Arrays a(kPiece);
  ops::nf4_quantize(a.ctx, {.x = Nf4Arrays::floats(a.x), .to = a.nf4()});
  std::vector<bf16> once(kPiece), all(n);
  ops::nf4_dequantize(a.ctx, {.from = a.nf4(), .y = Tensor::contiguous(once.data(), DType::bf16, {kPiece})});
  // The same numbers over and over are an array too.
  const auto again = [](auto& values, int64_t elements) {
    const auto before = values;
    values.resize(static_cast<size_t>(elements));
    for (size_t i = 0; i < values.size(); ++i) values[i] = before[i % before.size()];
  };
  again(a.codes, n / 2);
  again(a.scale_codes, ops::nf4_blocks(n));
  again(a.group_scales, ops::nf4_groups(n));
  ops::nf4_dequantize(a.ctx, {.from = a.nf4(), .y = Tensor::contiguous(all.data(), DType::bf16, {n})});
  for (int64_t first = 0; first < n; first += kPiece) {
    const int64_t size = std::min(kPiece, n - first);
    ASSERT_EQ(std::memcmp(all.data() + first, once.data(), static_cast<size_t>(size) * sizeof(bf16)), 0) << first;
  }
}

TEST(Nf4, BadArgumentsAreNamedAndNothingIsWritten) {
  Nf4Arrays a(1000);
  const auto refuse = [&](auto change, const char* text) {
    ops::Nf4Quantize bad{.x = Nf4Arrays::floats(a.x), .to = a.nf4()};
    change(bad);
    expect_error([&] { ops::nf4_quantize(a.ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(a.offset[0], -1.0f);
  };
  refuse([](auto& bad) { bad.x = {}; }, "'x' is missing");
  refuse([](auto& bad) { bad.x.dtype = DType::i32; }, "'x' has the wrong type");
  refuse([](auto& bad) { bad.to.codes = bad.to.codes.slice(0, 0, 499); }, "'codes'");
  refuse([](auto& bad) { bad.to.scale_codes = bad.to.scale_codes.slice(0, 0, 15); }, "'scale_codes'");
  refuse([](auto& bad) { bad.to.group_scales = {}; }, "'group_scales' is missing");
  refuse([](auto& bad) { bad.to.offset.dtype = DType::bf16; }, "'offset' has the wrong type");
  refuse([](auto& bad) { bad.to.offset = bad.to.group_scales; }, "overlaps");
  refuse([](auto& bad) { bad.x.strides[0] = 2; }, "'x' has gaps");
}

}  // namespace
}  // namespace tigon::test
