#include "tigon/ops/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "backend/rope_frequencies.hpp"
#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

struct RopeFixture : testing::Test {
  static constexpr int64_t kTokens = 5, kHeads = 3, kWidth = 12;
  RopeFixture() {
    for (size_t i = 0; i < q.size(); ++i) q[i] = 0.3f * static_cast<float>(i * i % 13) - 1.5f;
    for (size_t i = 0; i < k.size(); ++i) k[i] = 0.2f * static_cast<float>(i * i % 17) - 1.0f;
  }
  static Tensor heads(std::vector<float>& v) {
    return Tensor::contiguous(v.data(), DType::f32,
                              {kTokens, static_cast<int64_t>(v.size()) / kTokens / kWidth, kWidth});
  }
  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> q = std::vector<float>(180), k = std::vector<float>(60);
  std::vector<float> q_out = std::vector<float>(180, -1.0f), k_out = std::vector<float>(60, -1.0f);
  ops::Rope args{.q = heads(q), .k = heads(k), .q_out = heads(q_out), .k_out = heads(k_out)};
};

TEST_F(RopeFixture, PositionZeroIsTheIdentityAndPairsKeepTheirLength) {
  ops::rope_forward(ctx, args);
  for (size_t d = 0; d < 36; ++d) EXPECT_EQ(q_out[d], q[d]);
  for (size_t row = 0; row < 15; ++row) {
    for (size_t d = 0; d < 6; ++d) {
      const size_t a = row * 12 + d, b = a + 6;
      EXPECT_NEAR(std::hypot(q_out[a], q_out[b]), std::hypot(q[a], q[b]), 1e-6f);
    }
  }
}

TEST_F(RopeFixture, PairsKeepTheirLengthAtAnyPosition) {
  for (const auto pairing : {ops::RopePairing::half, ops::RopePairing::interleaved}) {
    args.pairing = pairing;
    std::vector<int64_t> positions = {int64_t{1} << 33, -(int64_t{1} << 50), int64_t{1} << 60,
                                      std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
    args.positions = Tensor::contiguous(positions.data(), DType::i64, {kTokens});
    ops::rope_forward(ctx, args);
    for (size_t row = 0; row < 15; ++row) {
      for (size_t d = 0; d < 6; ++d) {
        const bool half = pairing == ops::RopePairing::half;
        const size_t a = row * 12 + (half ? d : 2 * d), b = a + (half ? 6 : 1);
        EXPECT_NEAR(std::hypot(q_out[a], q_out[b]), std::hypot(q[a], q[b]), 1e-6f);
      }
    }
    EXPECT_NEAR(q_out[0], q[0] * std::cos(0x1p33) - q[pairing == ops::RopePairing::half ? 6 : 1] * std::sin(0x1p33),
                1e-6);
  }
}

TEST_F(RopeFixture, BackwardInvertsForward) {
  for (const auto pairing : {ops::RopePairing::half, ops::RopePairing::interleaved}) {
    args.pairing = pairing;
    args.rotary_dim = 10;
    ops::rope_forward(ctx, args);
    auto back = args;
    std::vector<float> q_back(180), k_back(60);
    back.q = args.q_out, back.k = args.k_out, back.q_out = heads(q_back), back.k_out = heads(k_back);
    ops::rope_backward(ctx, back);
    for (size_t i = 0; i < q.size(); ++i) EXPECT_NEAR(q_back[i], q[i], 1e-6f);
    for (size_t i = 0; i < k.size(); ++i) EXPECT_NEAR(k_back[i], k[i], 1e-6f);
  }
}

TEST_F(RopeFixture, InPlaceGivesTheSameBitsAndInputsAreKept) {
  for (const auto pairing : {ops::RopePairing::half, ops::RopePairing::interleaved}) {
    for (const int64_t rotary : {0, 8}) {
      args.pairing = pairing;
      args.rotary_dim = rotary;
      auto q_here = q, k_here = k;
      ops::rope_forward(ctx, args);
      EXPECT_EQ(q, q_here);
      EXPECT_EQ(k, k_here);
      auto in_place = args;
      in_place.q = in_place.q_out = heads(q_here);
      in_place.k = in_place.k_out = heads(k_here);
      ops::rope_forward(ctx, in_place);
      EXPECT_EQ(q_here, q_out);
      EXPECT_EQ(k_here, k_out);
    }
  }
}

TEST_F(RopeFixture, WorksOnAPackedProjectionAndWithoutK) {
  ops::rope_forward(ctx, args);
  const int64_t pitch = 12 * (3 + 1 + 1);  // q, k and v of a token side by side
  std::vector<float> packed(static_cast<size_t>(kTokens * pitch), 9.0f);
  const auto view = [&](int64_t first, int64_t count) {
    Tensor t = Tensor::contiguous(packed.data() + first * kWidth, DType::f32, {kTokens, count, kWidth});
    t.strides[0] = pitch;
    return t;
  };
  for (int64_t token = 0; token < kTokens; ++token) {
    std::copy_n(q.data() + token * 36, 36, packed.data() + token * pitch);
    std::copy_n(k.data() + token * 12, 12, packed.data() + token * pitch + 36);
  }
  auto in_place = args;
  in_place.q = in_place.q_out = view(0, 3);
  in_place.k = in_place.k_out = view(3, 1);
  ops::rope_forward(ctx, in_place);
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t d = 0; d < 36; ++d)
      EXPECT_EQ(packed[static_cast<size_t>(token * pitch + d)], q_out[static_cast<size_t>(token * 36 + d)]);
    for (int64_t d = 0; d < 12; ++d)
      EXPECT_EQ(packed[static_cast<size_t>(token * pitch + 36 + d)], k_out[static_cast<size_t>(token * 12 + d)]);
    for (int64_t d = 0; d < 12; ++d) EXPECT_EQ(packed[static_cast<size_t>(token * pitch + 48 + d)], 9.0f);
  }
  const auto expected = q_out;
  args.k = args.k_out = {};
  ops::rope_forward(ctx, args);
  EXPECT_EQ(q_out, expected);
}

TEST_F(RopeFixture, PositionsOfBothWidthsAndTablesAgree) {
  std::vector<int32_t> narrow = {4, 0, 3, 131071, 7};
  const std::vector<int64_t> wide_values(narrow.begin(), narrow.end());
  auto wide = wide_values;
  args.positions = Tensor::contiguous(narrow.data(), DType::i32, {kTokens});
  ops::rope_forward(ctx, args);
  const auto expected = q_out;
  args.positions = Tensor::contiguous(wide.data(), DType::i64, {kTokens});
  ops::rope_forward(ctx, args);
  EXPECT_EQ(q_out, expected);
  // The same angles as tables: rows of the distinct positions, picked by index.
  std::vector<float> frequencies(6), cos, sin;
  rope_inverse_frequencies({}, args.theta, kWidth, frequencies.data());
  for (const int32_t position : narrow) {
    for (const float frequency : frequencies) {
      cos.push_back(static_cast<float>(std::cos(static_cast<double>(static_cast<float>(position) * frequency))));
      sin.push_back(static_cast<float>(std::sin(static_cast<double>(static_cast<float>(position) * frequency))));
    }
  }
  args.positions = {};
  args.cos = Tensor::contiguous(cos.data(), DType::f32, {kTokens, 6});
  args.sin = Tensor::contiguous(sin.data(), DType::f32, {kTokens, 6});
  ops::rope_forward(ctx, args);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(q_out[i], expected[i], 5e-7f);
}

TEST_F(RopeFixture, DirectTablesNeedNoMemory) {
  std::vector<float> cos(30, 0.6f), sin(30, 0.8f);
  args.cos = Tensor::contiguous(cos.data(), DType::f32, {kTokens, 6});
  args.sin = Tensor::contiguous(sin.data(), DType::f32, {kTokens, 6});
  ops::rope_forward({}, args);
  EXPECT_FLOAT_EQ(q_out[0], 0.6f * q[0] - 0.8f * q[6]);
}

TEST(RopeFrequencies, AreHuggingFaces) {
  // Computed in torch 2.13 by the formulas of transformers' modeling_rope_utils, dimension 64, pairs 1, 7, 13, 16, 31.
  struct Golden {
    ops::RopeScaling scaling;
    double theta;
    float values[5];
  };
  using enum ops::RopeScalingKind;
  const Golden golden[] = {
      {{}, 500000.0, {0x1.53c38cp-1f, 0x1.d03ccep-5f, 0x1.3d2804p-8f, 0x1.72ba42p-10f, 0x1.948360p-19f}},
      {{.kind = llama3, .factor = 8.0},
       500000.0,
       {0x1.53c38cp-1f, 0x1.d03ccep-5f, 0x1.3d2804p-8f, 0x1.132ba4p-11f, 0x1.948360p-22f}},
      {{.kind = yarn, .factor = 4.0, .original_max_position = 4096},
       10000.0,
       {0x1.7ff222p-1f, 0x1.111aeep-3f, 0x1.4147eep-6f, 0x1.ac8130p-8f, 0x1.17a8e4p-15f}},
  };
  for (const Golden& g : golden) {
    std::vector<float> out(32);
    rope_inverse_frequencies(g.scaling, g.theta, 64, out.data());
    size_t i = 0;
    for (const size_t pair : {1u, 7u, 13u, 16u, 31u}) EXPECT_EQ(out[pair], g.values[i++]) << pair;
  }
  EXPECT_DOUBLE_EQ(rope_attention_factor({.kind = yarn, .factor = 4.0}), 0.1 * std::log(4.0) + 1.0);
  EXPECT_EQ(rope_attention_factor({.kind = yarn, .factor = 4.0, .attention_factor = 0.5}), 0.5);
  EXPECT_EQ(rope_attention_factor({.kind = llama3, .factor = 8.0, .attention_factor = 0.5}), 1.0);
}

TEST_F(RopeFixture, NanStaysInItsPair) {
  q[14] = std::numeric_limits<float>::quiet_NaN();
  ops::rope_forward(ctx, args);
  for (size_t i = 0; i < q_out.size(); ++i) EXPECT_EQ(std::isnan(q_out[i]), i == 14 || i == 20) << i;
}

TEST_F(RopeFixture, NoTokens) {
  for (Tensor* t : {&args.q, &args.k, &args.q_out, &args.k_out}) t->sizes[0] = 0;
  ops::rope_forward(ctx, args);
  EXPECT_EQ(q_out[0], -1.0f);
}

TEST_F(RopeFixture, BadArgumentsAreNamedAndNothingIsWritten) {
  std::vector<float> table(60, 0.5f);
  std::vector<int64_t> positions = {0, 1, 2, 3, 4};
  const Tensor rows = Tensor::contiguous(table.data(), DType::f32, {5, 6});
  const Tensor indices = Tensor::contiguous(positions.data(), DType::i64, {5});
  const auto refuse = [&](auto change, const char* text) {
    ops::Rope bad = args;
    change(bad);
    expect_error([&] { ops::rope_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    expect_error([&] { ops::rope_backward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(q_out, std::vector<float>(180, -1.0f));
  };
  refuse([](auto& a) { a.q = {}; }, "'q' is missing");
  refuse([](auto& a) { a.q.rank = 2; }, "'q' has the wrong shape");
  refuse([](auto& a) { a.q.strides[2] = 2; }, "gap between neighbouring elements");
  refuse([](auto& a) { a.k_out = {}; }, "'k' and 'k_out' come together");
  refuse([](auto& a) { a.k.sizes[0] = 4; }, "'k' has the wrong shape");
  refuse([](auto& a) { a.k.dtype = DType::bf16; }, "'k' has the wrong type");
  refuse([](auto& a) { a.q_out.strides[0] = 12; }, "share memory");
  refuse([](auto& a) { a.q_out.data = static_cast<std::byte*>(a.q.data) + 4; }, "'q_out' overlaps 'q'");
  refuse([](auto& a) { a.k_out.data = a.q.data; }, "'k_out' overlaps 'q'");
  refuse([](auto& a) { a.rotary_dim = 7; }, "'rotary_dim' is out of range");
  refuse([](auto& a) { a.rotary_dim = 14; }, "'rotary_dim' is out of range");
  refuse([](auto& a) { a.rotary_dim = -2; }, "'rotary_dim' is out of range");
  refuse([](auto& a) { a.pairing = static_cast<ops::RopePairing>(2); }, "'pairing' is out of range");
  refuse([](auto& a) { a.theta = 0; }, "'theta' is out of range");
  refuse([](auto& a) { a.scaling.kind = static_cast<ops::RopeScalingKind>(9); }, "'scaling.kind' is out of range");
  refuse([](auto& a) { a.scaling = {.kind = ops::RopeScalingKind::linear, .factor = 0}; }, "'scaling.factor'");
  refuse([](auto& a) { a.scaling = {.kind = ops::RopeScalingKind::llama3, .low_freq_factor = 4}; }, "high_freq_factor");
  refuse([](auto& a) { a.scaling.kind = ops::RopeScalingKind::yarn, a.theta = 1; }, "'theta' is too small");
  refuse([&](auto& a) { a.cos = rows; }, "'cos' and 'sin' come together");
  refuse([&](auto& a) { a.cos = a.sin = rows, a.cos.sizes[1] = a.sin.sizes[1] = 5; }, "wrong number of columns");
  refuse([&](auto& a) { a.cos = a.sin = rows, a.cos.sizes[0] = a.sin.sizes[0] = 4; }, "wrong number of rows");
  refuse([&](auto& a) { a.cos = a.sin = rows, a.cos.dtype = a.sin.dtype = DType::f16; }, "'cos' has the wrong type");
  refuse([&](auto& a) { a.positions = indices, a.positions.sizes[0] = 4; }, "'positions' has the wrong shape");
  refuse([&](auto& a) { a.positions = indices, a.positions.dtype = DType::f64; }, "'positions' has the wrong type");
  positions[3] = 5;
  refuse([&](auto& a) { a.cos = a.sin = rows, a.positions = indices; }, "'positions' is out of range at position 3");
  positions[3] = -1;
  refuse([&](auto& a) { a.cos = a.sin = rows, a.positions = indices; }, "'positions' is out of range at position 3");
}

}  // namespace
}  // namespace tigon::test
