#include "tigon/ops/adamw.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

// An array of any floating type with a few bytes of access by value.
class Array {
 public:
  Array(DType dtype, int64_t n) : bytes_(static_cast<size_t>(n * size_of(dtype))) {
    view = Tensor::contiguous(bytes_.data(), dtype, {n});
  }
  double get(int64_t i) const {
    switch (view.dtype) {
      case DType::bf16: return static_cast<double>(view.as<bf16>()[i]);
      case DType::f16: return static_cast<double>(view.as<f16>()[i]);
      default: return view.as<float>()[i];
    }
  }
  void put(int64_t i, double value) {
    switch (view.dtype) {
      case DType::bf16: view.as<bf16>()[i] = bf16(value); break;
      case DType::f16: view.as<f16>()[i] = f16(value); break;
      default: view.as<float>()[i] = static_cast<float>(value);
    }
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

  Tensor view;

 private:
  std::vector<std::byte> bytes_;
};

struct State {
  Array param, grad, m, v, copy;
  State(int64_t n, DType param_type, DType grad_type, DType m_type, DType v_type, DType copy_type)
      : param(param_type, n), grad(grad_type, n), m(m_type, n), v(v_type, n), copy(copy_type, n) {
    const RandomStream random{.seed = 11};
    for (int64_t i = 0; i < n; ++i) {
      const auto e = static_cast<uint64_t>(4 * i);
      param.put(i, random.normal(e));
      grad.put(i, random.normal(e + 1));
      m.put(i, 0.1 * random.normal(e + 2));
      v.put(i, 0.01 * (1.0 + random.uniform(e + 3)));
    }
  }
  ops::Adamw args() const {
    return {.param = param.view,
            .grad = grad.view,
            .m = m.view,
            .v = v.view,
            .param_copy = copy.view,
            .lr = 0.01,
            .weight_decay = 0.1,
            .step = 3};
  }
};

const Context kCtx{};

constexpr int64_t kCount = 1500;  // more than a piece, no multiple of a vector

TEST(Adamw, EveryMixOfTypesFollowsTheFormula) {
  constexpr DType kAll[] = {DType::f32, DType::bf16, DType::f16}, kMoments[] = {DType::f32, DType::bf16};
  for (const DType param_type : kAll) {
    for (const DType grad_type : kAll) {
      for (const DType m_type : kMoments) {
        for (const DType v_type : kMoments) {
          for (const ops::Rounding rounding : {ops::Rounding::nearest, ops::Rounding::stochastic}) {
            const DType copy_type = m_type == v_type ? DType::bf16 : DType::f16;
            const State before(kCount, param_type, grad_type, m_type, v_type, copy_type);
            const State after(kCount, param_type, grad_type, m_type, v_type, copy_type);
            ops::Adamw args = after.args();
            args.rounding = rounding;
            ops::adamw(kCtx, args);
            for (int64_t i = 0; i < kCount; ++i) {
              const double g = before.grad.get(i), p = before.param.get(i);
              const double m = 0.9 * before.m.get(i) + 0.1 * g, v = 0.999 * before.v.get(i) + 0.001 * g * g;
              const double update = m / (1 - 0.729) / (std::sqrt(v / (1 - std::pow(0.999, 3))) + 1e-8);
              const double expected = p - 0.01 * (update + 0.1 * p);
              ASSERT_NEAR(after.m.get(i), m, 1.01 * epsilon(m_type) * std::abs(m) + 1e-6);
              ASSERT_NEAR(after.v.get(i), v, 1.01 * epsilon(v_type) * v + 1e-7);
              ASSERT_NEAR(after.param.get(i), expected, 1.01 * epsilon(param_type) * std::abs(expected) + 1e-6);
              ASSERT_NEAR(after.copy.get(i), after.param.get(i), epsilon(copy_type) / 2 * std::abs(expected));
            }
          }
        }
      }
    }
  }
}

TEST(Adamw, ShardsGiveTheBitsOfTheWhole) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const State whole(kCount, dtype, dtype, DType::bf16, DType::bf16, DType::bf16);
    const State cut(kCount, dtype, dtype, DType::bf16, DType::bf16, DType::bf16);
    ops::Adamw args = whole.args();
    args.rounding = ops::Rounding::stochastic;
    args.seed = 5;
    args.first_element = (int64_t{1} << 34) - 1024;  // the block counter carries into its upper word on the way
    ops::adamw(kCtx, args);
    const std::vector<int64_t> bounds = {0, 1, 6, 517, 1030, kCount};
    for (size_t shard = 0; shard + 1 < bounds.size(); ++shard) {
      ops::Adamw part = args;
      part.first_element = args.first_element + bounds[shard];
      const auto slice = [&](const Array& array) { return array.view.slice(0, bounds[shard], bounds[shard + 1]); };
      part.param = slice(cut.param), part.grad = slice(cut.grad), part.m = slice(cut.m), part.v = slice(cut.v);
      part.param_copy = slice(cut.copy);
      ops::adamw(kCtx, part);
    }
    EXPECT_EQ(whole.param.bytes(), cut.param.bytes());
    EXPECT_EQ(whole.m.bytes(), cut.m.bytes());
    EXPECT_EQ(whole.v.bytes(), cut.v.bytes());
    EXPECT_EQ(whole.copy.bytes(), cut.copy.bytes());
  }
}

// With lr 0 the parameter only passes through rounding, and m and v are set by the betas: here m becomes the gradient
// and v its square.
struct RoundingRun {
  State state;
  explicit RoundingRun(int64_t n, DType param_type, float grad)
      : state(n, param_type, DType::f32, DType::bf16, DType::bf16, DType::bf16) {
    for (int64_t i = 0; i < n; ++i) state.grad.put(i, grad);
  }
  void run() {
    ops::Adamw args = state.args();
    args.lr = 0;
    args.beta1 = args.beta2 = 0;
    args.rounding = ops::Rounding::stochastic;
    args.seed = 123;
    ops::adamw(kCtx, args);
  }
};

TEST(Adamw, StochasticRoundingIsUnbiased) {
  constexpr int64_t kDraws = 1 << 16;
  for (const float grad : {1.0f + 0.3f * 0x1p-7f, -1.0f - 0.3f * 0x1p-7f, 3.0f + 0x1p-20f}) {
    RoundingRun r(kDraws, DType::bf16, grad);
    r.run();
    double m_sum = 0, v_sum = 0, product = 0;
    for (int64_t i = 0; i < kDraws; ++i) {
      const double m = r.state.m.get(i) - grad, v = r.state.v.get(i) - double{grad} * grad;
      m_sum += m;
      v_sum += v;
      product += m * v;
      ASSERT_LT(std::abs(m), epsilon(DType::bf16) * std::abs(grad));
    }
    // Four standard errors of a coin between two neighbours.
    const double step = epsilon(DType::bf16) * std::abs(grad), error = 4 * 0.5 * step / std::sqrt(kDraws);
    EXPECT_LT(std::abs(m_sum / kDraws), error);
    EXPECT_LT(std::abs(v_sum / kDraws), error * 2 * std::abs(grad));
    EXPECT_LT(std::abs(product / kDraws - m_sum * v_sum / kDraws / kDraws), error * step * 4) << "m and v share bits";
  }
}

TEST(Adamw, StochasticF16IsUnbiasedAlsoWhereItIsSubnormal) {
  constexpr int64_t kDraws = 1 << 16;
  // The step of f16 is 2^-10 at 1 and 2^-24 below 2^-14. The update −lr·m̂/(√v̂ + eps) moves a parameter of 0 to −lr.
  for (const double target : {1.0 + 0.3 * 0x1p-10, 0x1p-18 + 0.7 * 0x1p-24}) {
    State state(kDraws, DType::f16, DType::f32, DType::f32, DType::f32, DType::f16);
    for (int64_t i = 0; i < kDraws; ++i) {
      state.param.put(i, 0);
      state.grad.put(i, 1);
    }
    ops::Adamw args = state.args();
    args.lr = target;
    args.beta1 = args.beta2 = args.eps = args.weight_decay = 0;
    args.rounding = ops::Rounding::stochastic;
    ops::adamw(kCtx, args);
    double sum = 0;
    for (int64_t i = 0; i < kDraws; ++i) sum -= state.param.get(i);
    const double step = target > 0.5 ? 0x1p-10 : 0x1p-24;
    EXPECT_LT(std::abs(sum / kDraws - target), 2 * step / std::sqrt(kDraws)) << target;
    EXPECT_EQ(state.param.bytes(), state.copy.bytes()) << "the copy is of the parameter as stored";
  }
}

TEST(Adamw, StochasticRoundingLeavesExactValuesAlone) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    RoundingRun r(kCount, dtype, 1.5f);
    r.state.param.put(0, dtype == DType::f16 ? 65504 : 0x1p127);
    r.state.param.put(1, -0.0);
    r.state.param.put(2, dtype == DType::f16 ? 0x1p-24 : 0x1p-133);
    const std::vector<std::byte> before = r.state.param.bytes();
    ops::Adamw args = r.state.args();
    args.lr = args.weight_decay = args.beta1 = args.beta2 = 0;
    args.rounding = ops::Rounding::stochastic;
    ops::adamw(kCtx, args);
    EXPECT_EQ(before, r.state.param.bytes());
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(r.state.m.get(i), 1.5);
      ASSERT_EQ(r.state.v.get(i), 2.25);
    }
  }
}

TEST(Adamw, TheRandomBitsAreTheDocumentedOnes) {
  constexpr int64_t kFirst = 4097;
  State state(kCount, DType::bf16, DType::f32, DType::bf16, DType::bf16, DType::bf16);
  ops::Adamw args = state.args();
  const float grad = 1.0f + 0x1p-9f;
  for (int64_t i = 0; i < kCount; ++i) state.grad.put(i, grad);
  args.lr = args.weight_decay = args.beta1 = args.beta2 = 0;
  args.rounding = ops::Rounding::stochastic;
  args.seed = uint64_t{77} << 33;
  args.tensor_id = 9;
  args.first_element = kFirst;
  ops::adamw(kCtx, args);
  const RandomStream random{.seed = args.seed, .step = 3, .tensor = 9};
  const auto rounded = [](float value, uint32_t bits) {
    uint32_t word;
    std::memcpy(&word, &value, 4);
    word = (word + (bits & 0xffffu)) & 0xffff0000u;
    std::memcpy(&value, &word, 4);
    return static_cast<double>(value);
  };
  for (int64_t i = 0; i < kCount; ++i) {
    const auto element = static_cast<uint64_t>(kFirst + i);
    ASSERT_EQ(state.m.get(i), rounded(grad, random.bits(element) >> 16)) << i;
    ASSERT_EQ(state.v.get(i), rounded(grad * grad, random.bits(element) * ops::kBitsOfV >> 16)) << i;
  }
}

TEST(Adamw, NaNAndInfinityStayWhatTheyAre) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    State state(4, dtype, DType::f32, DType::bf16, DType::bf16, DType::bf16);
    state.grad.put(1, NAN);
    state.grad.put(2, INFINITY);
    ops::Adamw args = state.args();
    args.rounding = ops::Rounding::stochastic;
    ops::adamw(kCtx, args);
    EXPECT_TRUE(std::isfinite(state.param.get(0)));
    EXPECT_TRUE(std::isnan(state.param.get(1)) && std::isnan(state.m.get(1)) && std::isnan(state.copy.get(1)));
    EXPECT_EQ(state.m.get(2), INFINITY);
    EXPECT_EQ(state.v.get(2), INFINITY);
  }
}

TEST(Adamw, AGradScaleOfZeroSkipsTheGradient) {
  State state(4, DType::f32, DType::f32, DType::f32, DType::f32, DType::bf16);
  float clip = 0;
  ops::Adamw args = state.args();
  args.grad_scale = Tensor::contiguous(&clip, DType::f32, {1});
  const double m = state.m.get(0);
  ops::adamw(kCtx, args);
  EXPECT_FLOAT_EQ(static_cast<float>(state.m.get(0)), static_cast<float>(0.9 * m));
}

TEST(Adamw, BadArgumentsAreNamedAndNothingIsWritten) {
  const State state(kCount, DType::f32, DType::bf16, DType::f32, DType::bf16, DType::bf16);
  const State untouched(kCount, DType::f32, DType::bf16, DType::f32, DType::bf16, DType::bf16);
  const auto refuse = [&](auto change, const char* text) {
    ops::Adamw bad = state.args();
    change(bad);
    expect_error([&] { ops::adamw(kCtx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(state.param.bytes(), untouched.param.bytes());
    EXPECT_EQ(state.m.bytes(), untouched.m.bytes());
    EXPECT_EQ(state.v.bytes(), untouched.v.bytes());
  };
  refuse([](auto& a) { a.param = {}; }, "'param' is missing");
  refuse([](auto& a) { a.param.rank = 2; }, "'param' has the wrong shape");
  refuse([](auto& a) { a.param.dtype = DType::i32; }, "'param' has the wrong type");
  refuse([](auto& a) { a.param.data = nullptr; }, "null data pointer");
  refuse([](auto& a) { a.param.strides[0] = 2; }, "'param' has gaps");
  refuse([](auto& a) { a.grad.sizes[0] = 3; }, "'grad' has the wrong shape");
  refuse([](auto& a) { a.grad.data = static_cast<std::byte*>(a.grad.data) + 1; }, "misaligned");
  refuse([](auto& a) { a.grad.data = a.param.data; }, "'param' overlaps 'grad'");
  refuse([](auto& a) { a.m.dtype = DType::f64; }, "f64 does not mix");
  refuse([](auto& a) { a.v.dtype = DType::f16; }, "expected f32, bf16 or u8, got f16");
  refuse([](auto& a) { a.param_copy = a.v; }, "'v' overlaps 'param_copy'");
  refuse([](auto& a) { a.grad_scale = a.m.slice(0, 0, 1); }, "'m' overlaps 'grad_scale'");
  refuse([](auto& a) { a.lr = NAN; }, "'lr' is not finite");
  refuse([](auto& a) { a.beta1 = 1; }, "never learns");
  refuse([](auto& a) { a.beta2 = -0.5; }, "'beta2' is out of range");
  refuse([](auto& a) { a.eps = -1; }, "'eps' is out of range");
  refuse([](auto& a) { a.step = 0; }, "'step' is out of range");
  refuse([](auto& a) { a.first_element = -1; }, "'first_element' is out of range");
  refuse([](auto& a) { a.rounding = static_cast<ops::Rounding>(5); }, "'rounding' is out of range");
}

}  // namespace
}  // namespace tigon::test
