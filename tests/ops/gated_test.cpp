// swiglu and geglu beyond their tables: what may alias what, bad input, special values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/geglu.hpp"
#include "tigon/ops/swiglu.hpp"

namespace tigon::test {
namespace {

struct Swiglu {
  using Forward = ops::SwigluForward;
  using Backward = ops::SwigluBackward;
  static void forward(const Context& ctx, const Forward& args) { ops::swiglu_forward(ctx, args); }
  static void backward(const Context& ctx, const Backward& args) { ops::swiglu_backward(ctx, args); }
};

template <ops::Gelu kGelu>
struct Geglu {
  using Forward = ops::GegluForward;
  using Backward = ops::GegluBackward;
  static void forward(const Context& ctx, Forward args) {
    args.gelu = kGelu;
    ops::geglu_forward(ctx, args);
  }
  static void backward(const Context& ctx, Backward args) {
    args.gelu = kGelu;
    ops::geglu_backward(ctx, args);
  }
};

template <class Op>
struct Gated : testing::Test {
  static constexpr int64_t kRows = 3, kColumns = 21;
  static constexpr size_t kCount = kRows * kColumns;
  Gated() {
    for (size_t i = 0; i < kCount; ++i) {
      a[i] = 0.37f * static_cast<float>(i % 23) - 4.0f;
      b[i] = 0.21f * static_cast<float>(i % 17) - 1.7f;
      dc[i] = 0.13f * static_cast<float>(i % 19) - 1.1f;
    }
  }
  static Tensor matrix(std::vector<float>& v) { return Tensor::contiguous(v.data(), DType::f32, {kRows, kColumns}); }

  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> a = std::vector<float>(kCount), b = a, dc = a;
  std::vector<float> c = std::vector<float>(kCount, -1.0f), da = c, db = c, c_again = c;
  typename Op::Forward forward{.a = matrix(a), .b = matrix(b), .c = matrix(c)};
  typename Op::Backward backward{
      .dc = matrix(dc), .a = matrix(a), .b = matrix(b), .da = matrix(da), .db = matrix(db), .c = matrix(c_again)};
};
using Ops = testing::Types<Swiglu, Geglu<ops::Gelu::tanh>, Geglu<ops::Gelu::erf>>;
TYPED_TEST_SUITE(Gated, Ops);

TYPED_TEST(Gated, SlopesEndAtOneAndZeroHoweverLargeTheGate) {
  const std::vector<float> large = {1e5f, 1e19f, 1e20f, 1e30f, 3e38f};
  for (size_t i = 0; i < this->kCount; ++i) {
    this->a[i] = large[i / 2 % large.size()] * (i % 2 == 0 ? 1.0f : -1.0f);
    this->b[i] = this->dc[i] = 1.0f;
  }
  TypeParam::backward(this->ctx, this->backward);
  for (size_t i = 0; i < this->kCount; ++i) EXPECT_EQ(this->da[i], i % 2 == 0 ? 1.0f : 0.0f) << this->a[i];
}

TYPED_TEST(Gated, InPlaceGivesTheSameBitsAndInputsAreKept) {
  const auto a_before = this->a, b_before = this->b, dc_before = this->dc;
  TypeParam::forward(this->ctx, this->forward);
  TypeParam::backward(this->ctx, this->backward);
  EXPECT_EQ(this->a, a_before);
  EXPECT_EQ(this->b, b_before);
  EXPECT_EQ(this->dc, dc_before);
  EXPECT_EQ(this->c_again, this->c);
  const auto c_apart = this->c, da_apart = this->da, db_apart = this->db;
  for (auto* target : {&this->a, &this->b}) {
    const auto kept = *target;
    this->forward.c = this->matrix(*target);
    TypeParam::forward(this->ctx, this->forward);
    EXPECT_EQ(*target, c_apart);
    *target = kept;
  }
  this->backward.da = this->backward.a;
  this->backward.db = this->backward.b;
  this->backward.c = this->backward.dc;
  TypeParam::backward(this->ctx, this->backward);
  EXPECT_EQ(this->a, da_apart);
  EXPECT_EQ(this->b, db_apart);
  EXPECT_EQ(this->dc, c_apart);
}

TYPED_TEST(Gated, BackwardTwiceGivesTheSame) {
  TypeParam::backward(this->ctx, this->backward);
  const auto da_first = this->da, db_first = this->db;
  TypeParam::backward(this->ctx, this->backward);
  EXPECT_EQ(this->da, da_first);
  EXPECT_EQ(this->db, db_first);
}

TYPED_TEST(Gated, PackedHalvesInPlace) {
  constexpr int64_t kRows = TestFixture::kRows, kColumns = TestFixture::kColumns;
  TypeParam::backward(this->ctx, this->backward);
  std::vector<float> packed(2 * TestFixture::kCount);
  const Tensor whole = Tensor::contiguous(packed.data(), DType::f32, {kRows, 2 * kColumns});
  for (size_t i = 0; i < TestFixture::kCount; ++i) {
    const size_t at = i / kColumns * 2 * kColumns + i % kColumns;
    packed[at] = this->a[i], packed[at + kColumns] = this->b[i];
  }
  auto args = this->backward;
  args.a = args.da = whole.slice(1, 0, kColumns);
  args.b = args.db = whole.slice(1, kColumns, 2 * kColumns);
  TypeParam::backward(this->ctx, args);
  for (size_t i = 0; i < TestFixture::kCount; ++i) {
    const size_t at = i / kColumns * 2 * kColumns + i % kColumns;
    EXPECT_EQ(packed[at], this->da[i]);
    EXPECT_EQ(packed[at + kColumns], this->db[i]);
  }
}

TYPED_TEST(Gated, SpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  this->a[0] = kNan, this->a[1] = kInf, this->a[2] = 200.0f, this->a[3] = -200.0f, this->a[4] = 0.0f;
  this->b[5] = kNan;
  for (size_t i = 0; i < 5; ++i) this->b[i] = 2.0f;
  TypeParam::forward(this->ctx, this->forward);
  TypeParam::backward(this->ctx, this->backward);
  EXPECT_TRUE(std::isnan(this->c[0]));
  EXPECT_TRUE(std::isnan(this->da[0]));
  EXPECT_EQ(this->c[1], kInf);
  EXPECT_EQ(this->c[2], 400.0f);
  EXPECT_EQ(this->da[2], this->dc[2] * 2.0f);
  EXPECT_EQ(this->c[3], 0.0f);
  EXPECT_EQ(this->da[3], 0.0f);
  EXPECT_EQ(this->c[4], 0.0f);
  EXPECT_FLOAT_EQ(this->da[4], this->dc[4]);
  EXPECT_TRUE(std::isnan(this->c[5]));
  EXPECT_FALSE(std::isnan(this->c[6]));
}

TYPED_TEST(Gated, NoRows) {
  for (Tensor* t : {&this->forward.a, &this->forward.b, &this->forward.c}) t->sizes[0] = 0;
  TypeParam::forward(this->ctx, this->forward);
  EXPECT_EQ(this->c[0], -1.0f);
}

TYPED_TEST(Gated, BadArgumentsAreNamed) {
  const auto refuse = [&](auto change, const char* text) {
    auto bad = this->backward;
    change(bad);
    expect_error([&] { TypeParam::backward(this->ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(this->da, std::vector<float>(TestFixture::kCount, -1.0f));
  };
  refuse([](auto& t) { t.a = {}; }, "'a' is missing");
  refuse([](auto& t) { t.dc.sizes[0] = 2; }, "'dc' has the wrong shape");
  refuse([](auto& t) { t.b.dtype = DType::f16; }, "'b' has the wrong type");
  refuse([](auto& t) { t.da = t.b; }, "'da' overlaps 'b'");
  refuse([](auto& t) { t.db = t.a; }, "'db' overlaps 'a'");
  refuse([](auto& t) { t.da = t.dc; }, "'da' overlaps 'dc'");
  refuse([](auto& t) { t.db = t.da; }, "'da' overlaps 'db'");
  refuse([](auto& t) { t.c = t.a; }, "'c' overlaps 'a'");
  refuse([](auto& t) { t.c = t.db; }, "'c' overlaps 'db'");
  refuse(
      [](auto& t) {
        t.dc.sizes[1] = t.a.sizes[1] = t.b.sizes[1] = t.da.sizes[1] = t.db.sizes[1] = t.c.sizes[1] = 20;
        t.c.data = t.dc.template as<float>() + 1;
        t.c.strides[0] = t.dc.strides[0];
      },
      "'c' overlaps 'dc'");
  auto bad = this->forward;
  bad.c.strides[0] = 20;
  expect_error([&] { TypeParam::forward(this->ctx, bad); }, ErrorCode::invalid_argument, "share memory");
}

TEST(Geglu, UnknownGelu) {
  std::vector<float> v(3, 1.0f), out(1);
  const auto one = [&](size_t i) { return Tensor::contiguous(v.data() + i, DType::f32, {1, 1}); };
  expect_error(
      [&] { ops::geglu_forward({}, {.a = one(0), .b = one(1), .c = one(2), .gelu = static_cast<ops::Gelu>(2)}); },
      ErrorCode::invalid_argument, "'gelu' is out of range");
}

}  // namespace
}  // namespace tigon::test
