// adamw with states in 8 bits: the table, the nearest entry, and what has none.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/dynamic_map.hpp"
#include "ops/expect_error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/ops/adamw.hpp"

namespace tigon::test {
namespace {

constexpr int64_t kBlock = ops::kCodeBlock;

// Parameters in f32 with states in 8 bits, at the beginning of a run: all zero.
struct State {
  std::vector<float> param, grad, m_scale, v_scale;
  std::vector<uint8_t> m, v;
  explicit State(int64_t n)
      : param(static_cast<size_t>(n)),
        grad(static_cast<size_t>(n)),
        m_scale(static_cast<size_t>((n + kBlock - 1) / kBlock)),
        v_scale(m_scale.size()),
        m(static_cast<size_t>(n)),
        v(static_cast<size_t>(n)) {}

  template <class T>
  static Tensor tensor(std::vector<T>& values) {
    return Tensor::contiguous(values.data(), dtype_of<T>(), {static_cast<int64_t>(values.size())});
  }
  ops::Adamw args() {
    return {.param = tensor(param),
            .grad = tensor(grad),
            .m = tensor(m),
            .v = tensor(v),
            .m_scale = tensor(m_scale),
            .v_scale = tensor(v_scale),
            .lr = 0.01,
            .weight_decay = 0.1};
  }
  // With both betas 0, m becomes the gradient and v its square.
  void keep(const std::vector<float>& gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) grad[i] = gradients[i];
    ops::Adamw a = args();
    a.beta1 = a.beta2 = 0;
    ops::adamw({}, a);
  }
  float stored_m(int64_t i) const {
    return kSignedTables.map[m[static_cast<size_t>(i)]] * m_scale[static_cast<size_t>(i / kBlock)];
  }
  float stored_v(int64_t i) const {
    return kUnsignedTables.map[v[static_cast<size_t>(i)]] * v_scale[static_cast<size_t>(i / kBlock)];
  }
};

TEST(DynamicMap, HasSevenDecadesInOrder) {
  for (const DynamicTables* tables : {&kSignedTables, &kUnsignedTables}) {
    const DynamicMap& map = tables->map;
    for (size_t i = 1; i < map.size(); ++i) ASSERT_LT(map[i - 1], map[i]) << i;
    EXPECT_EQ(map[255], 1.0f);
  }
  EXPECT_EQ(kSignedTables.map[kZeroOfSigned], 0.0f);
  EXPECT_EQ(kUnsignedTables.map[0], 0.0f);
  for (size_t i = 1; i <= 127; ++i) EXPECT_EQ(kSignedTables.map[127 - i], -kSignedTables.map[127 + i]);
  // The ends of some decades: the middle of the first or last part of [0.1, 1].
  EXPECT_FLOAT_EQ(kSignedTables.map[128], 0.55e-6f);
  EXPECT_FLOAT_EQ(kSignedTables.map[254], 1.0f - 0.45f / 64);
  EXPECT_FLOAT_EQ(kUnsignedTables.map[1], 0.325e-6f);
  EXPECT_FLOAT_EQ(kUnsignedTables.map[127], 0.1f + 0.45f / 128);
}

// Every middle between two entries, what is next to it on either side, and a great many others. m takes a value as it
// is where the block's largest is 1.
TEST(Adamw8, TakesTheNearestEntryAndTheLowerOfTwo) {
  const auto nearest = [](float value, const DynamicMap& map) {
    int code = 0;
    while (code < 255 && value > (map[static_cast<size_t>(code)] + map[static_cast<size_t>(code) + 1]) / 2) ++code;
    return code;
  };
  std::vector<float> values;
  for (const DynamicTables* tables : {&kSignedTables, &kUnsignedTables}) {
    for (size_t i = 0; i + 1 < 256; ++i) {
      const float middle = (tables->map[i] + tables->map[i + 1]) / 2;
      for (const float value : {middle, std::nextafter(middle, 2.0f), std::nextafter(middle, -2.0f)})
        values.insert(values.end(), {value, -value});
    }
  }
  const RandomStream random{.seed = 3};
  for (uint64_t i = 0; i < 200000; ++i) {
    const float magnitude = std::pow(10.0f, -9.0f * random.uniform(2 * i));
    values.push_back(random.uniform(2 * i + 1) < 0.5f ? magnitude : -magnitude);
  }
  for (const float value : {0.0f, -0.0f, 1e-45f, -1e-45f, 0x1p-23f, 0x1p-24f, -1.0f, 1.0f}) values.push_back(value);
  std::vector<float> gradients;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 255 == 0) gradients.push_back(1.0f);  // the block's largest
    gradients.push_back(values[i]);
  }
  State state(static_cast<int64_t>(gradients.size()));
  state.keep(gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    ASSERT_EQ(state.m[i], nearest(gradients[i], kSignedTables.map)) << gradients[i];
    ASSERT_EQ(state.v[i], nearest(gradients[i] * gradients[i], kUnsignedTables.map)) << gradients[i];
  }
  for (size_t block = 0; block < state.m_scale.size(); ++block) {
    ASSERT_EQ(state.m_scale[block], 1.0f);
    ASSERT_EQ(state.v_scale[block], 1.0f);
  }
}

TEST(Adamw8, ZeroIsZero) {
  State state(700);
  for (float& p : state.param) p = 2.0f;
  state.keep(std::vector<float>(700, 0.0f));
  for (int64_t i = 0; i < 700; ++i) {
    ASSERT_EQ(state.stored_m(i), 0.0f);
    ASSERT_EQ(state.stored_v(i), 0.0f);
    ASSERT_FLOAT_EQ(state.param[static_cast<size_t>(i)], 2.0f - 0.01f * 0.1f * 2.0f);  // decays alone
  }
  EXPECT_EQ(state.m_scale[0], 0.0f);
  // Below f32's normal range there is no scale to divide by.
  state.keep(std::vector<float>(700, 1e-40f));
  EXPECT_EQ(state.m_scale[0], 0.0f);
  EXPECT_EQ(state.stored_m(3), 0.0f);
  state.keep(std::vector<float>(700, 1e-30f));
  EXPECT_EQ(state.stored_m(3), 1e-30f);
  EXPECT_EQ(state.stored_v(3), 0.0f);
}

TEST(Adamw8, OneHugeValueLeavesTheOthersOfItsBlockAtZero) {
  State state(512);
  std::vector<float> gradients(512, 1e-3f);
  gradients[17] = -1e6f;
  state.keep(gradients);
  EXPECT_NEAR(state.stored_m(17), -1e6f, 1e6f * 0.008f);  // −1 has no entry, and the next is 1 − 0.45/64
  EXPECT_EQ(state.stored_v(17), 1e12f);
  EXPECT_EQ(state.stored_m(18), 0.0f);
  EXPECT_EQ(state.stored_v(18), 0.0f);
  EXPECT_EQ(state.stored_m(256), 1e-3f) << "the next block has its own scale";
  for (const float p : state.param) EXPECT_TRUE(std::isfinite(p));
}

TEST(Adamw8, WhatIsNotFiniteKeepsNothingAndShowsInItsParameterAlone) {
  State state(300);
  std::vector<float> gradients(300, 0.5f);
  gradients[3] = NAN;
  gradients[4] = INFINITY;
  gradients[5] = -INFINITY;
  gradients[6] = 1e30f;  // whose square is infinite
  state.keep(gradients);
  for (int64_t i = 0; i < 300; ++i) {
    const bool lost = i >= 3 && i <= 6;
    ASSERT_EQ(state.stored_m(i), lost ? 0.0f : 0.5f) << i;
    ASSERT_EQ(state.stored_v(i), lost ? 0.0f : 0.25f) << i;
    ASSERT_EQ(std::isfinite(state.param[static_cast<size_t>(i)]), i < 3 || i > 5) << i;
  }
}

TEST(Adamw8, ShardsOfWholeBlocksGiveTheBitsOfTheWhole) {
  constexpr int64_t kCount = 5000;
  const RandomStream random{.seed = 8};
  State whole(kCount), cut(kCount);
  for (int step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < whole.grad.size(); ++i)
      whole.grad[i] = cut.grad[i] = random.normal(static_cast<uint64_t>(step) * kCount + i);
    ops::Adamw args = whole.args();
    args.step = step;
    ops::adamw({}, args);
    const std::vector<int64_t> bounds = {0, 256, 1024, 4608, kCount};
    for (size_t shard = 0; shard + 1 < bounds.size(); ++shard) {
      const int64_t begin = bounds[shard], end = bounds[shard + 1];
      ops::Adamw part = cut.args();
      part.step = step;
      part.first_element = begin;
      for (Tensor* t : {&part.param, &part.grad, &part.m, &part.v}) *t = t->slice(0, begin, end);
      for (Tensor* t : {&part.m_scale, &part.v_scale}) *t = t->slice(0, begin / kBlock, (end + kBlock - 1) / kBlock);
      ops::adamw({}, part);
    }
  }
  EXPECT_EQ(whole.param, cut.param);
  EXPECT_EQ(whole.m, cut.m);
  EXPECT_EQ(whole.v, cut.v);
  EXPECT_EQ(whole.m_scale, cut.m_scale);
  EXPECT_EQ(whole.v_scale, cut.v_scale);
}

TEST(Adamw8, BadArgumentsAreNamedAndNothingIsWritten) {
  State state(600);
  const auto refuse = [&](auto change, const char* text) {
    ops::Adamw bad = state.args();
    change(bad);
    expect_error([&] { ops::adamw({}, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(state.m_scale[0], 0.0f);
  };
  for (float& g : state.grad) g = 1.0f;
  refuse([](auto& a) { a.m_scale = {}; }, "'m_scale' is missing");
  refuse([](auto& a) { a.v_scale = a.v_scale.slice(0, 0, 2); }, "'v_scale' has the wrong shape");
  refuse([](auto& a) { a.v_scale = a.m_scale; }, "'m_scale' overlaps 'v_scale'");
  refuse([](auto& a) { a.grad_scale = a.m_scale.slice(0, 0, 1); }, "'m_scale' overlaps 'grad_scale'");
  refuse([](auto& a) { a.m_scale.dtype = DType::i32; }, "'m_scale' has the wrong type");
  refuse([](auto& a) { a.v.dtype = DType::bf16; }, "both in 8 bits or neither");
  refuse([](auto& a) { a.first_element = 100; }, "'first_element' cuts a block");
  std::vector<float> wide(600), more(600);
  refuse([&](auto& a) { a.m = State::tensor(wide), a.v = State::tensor(more); }, "belongs to states in 8 bits");
}

}  // namespace
}  // namespace tigon::test
