// Outputs larger than the cache are stored past it. The same op in place is not, so the two must give the same bits.
#include <gtest/gtest.h>

#include <cstring>

#include "tigon/memory/arena.hpp"
#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/geglu.hpp"
#include "tigon/ops/layernorm.hpp"
#include "tigon/ops/rope.hpp"
#include "tigon/ops/swiglu.hpp"

namespace tigon::test {
namespace {

template <class T>
struct LargeOutput : testing::Test {
  // 33 MiB and more, with rows of whole cache lines.
  static constexpr int64_t kColumns = 2048, kRows = (int64_t{33} << 20) / kColumns / static_cast<int64_t>(sizeof(T));

  HeapArena heap;
  Context ctx{.memory = &heap};

  OwnedTensor make() { return {ctx, "matrix", dtype_of<T>(), {kRows, kColumns}, MemoryClass::other}; }
  OwnedTensor filled(int64_t seed) {
    OwnedTensor t = make();
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      t.view.template as<T>()[i] = T(static_cast<float>((i * 2654435761 + seed * 977) % 4093) / 1024.0f - 2.0f);
    }
    return t;
  }
  OwnedTensor copy(const Tensor& t) {
    OwnedTensor same = make();
    std::memcpy(same.view.data, t.data, static_cast<size_t>(t.bytes()));
    return same;
  }
  static bool same_bits(const Tensor& a, const Tensor& b) {
    return std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
  }
  OwnedTensor statistic() { return {ctx, "statistic", DType::f32, {kRows}, MemoryClass::other}; }
};
using Types = testing::Types<float, bf16, f16>;
TYPED_TEST_SUITE(LargeOutput, Types);

TYPED_TEST(LargeOutput, AddRmsnorm) {
  const OwnedTensor x = this->filled(1), residual = this->filled(2), sum = this->make(), y = this->make();
  const OwnedTensor sum_here = this->copy(residual), y_here = this->copy(x), rstd = this->statistic();
  ops::add_rmsnorm_forward(this->ctx, {.x = x, .residual = residual, .residual_out = sum, .y = y, .rstd = rstd});
  ops::add_rmsnorm_forward(this->ctx, {.x = y_here, .residual = sum_here, .residual_out = sum_here, .y = y_here});
  EXPECT_TRUE(this->same_bits(sum, sum_here));
  EXPECT_TRUE(this->same_bits(y, y_here));
  const OwnedTensor dx = this->make(), dx_here = this->copy(y);
  ops::add_rmsnorm_backward(this->ctx,
                            {.dy = y, .dresidual_out = residual, .residual_out = sum, .rstd = rstd, .dx = dx});
  ops::add_rmsnorm_backward(
      this->ctx, {.dy = dx_here, .dresidual_out = residual, .residual_out = sum, .rstd = rstd, .dx = dx_here});
  EXPECT_TRUE(this->same_bits(dx, dx_here));
}

TYPED_TEST(LargeOutput, RmsnormAndLayernorm) {
  const OwnedTensor x = this->filled(1), dy = this->filled(2), y = this->make(), dx = this->make();
  const OwnedTensor mean = this->statistic(), rstd = this->statistic();
  const OwnedTensor here = this->copy(x);
  ops::rmsnorm_forward(this->ctx, {.x = x, .y = y, .rstd = rstd});
  ops::rmsnorm_forward(this->ctx, {.x = here, .y = here});
  EXPECT_TRUE(this->same_bits(y, here));
  std::memcpy(here.view.data, dy.view.data, static_cast<size_t>(dy.view.bytes()));
  ops::rmsnorm_backward(this->ctx, {.dy = dy, .x = x, .rstd = rstd, .dx = dx});
  ops::rmsnorm_backward(this->ctx, {.dy = here, .x = x, .rstd = rstd, .dx = here});
  EXPECT_TRUE(this->same_bits(dx, here));

  std::memcpy(here.view.data, x.view.data, static_cast<size_t>(x.view.bytes()));
  ops::layernorm_forward(this->ctx, {.x = x, .y = y, .mean = mean, .rstd = rstd});
  ops::layernorm_forward(this->ctx, {.x = here, .y = here});
  EXPECT_TRUE(this->same_bits(y, here));
  std::memcpy(here.view.data, dy.view.data, static_cast<size_t>(dy.view.bytes()));
  ops::layernorm_backward(this->ctx, {.dy = dy, .x = x, .mean = mean, .rstd = rstd, .dx = dx});
  ops::layernorm_backward(this->ctx, {.dy = here, .x = x, .mean = mean, .rstd = rstd, .dx = here});
  EXPECT_TRUE(this->same_bits(dx, here));
}

TYPED_TEST(LargeOutput, Rope) {
  const OwnedTensor x = this->filled(1), y = this->make();
  const auto heads = [](const Tensor& t) { return t.reshape({t.sizes[0], 16, 128}); };
  for (const auto pairing : {ops::RopePairing::half, ops::RopePairing::interleaved}) {
    for (const int64_t rotary : {0, 64}) {
      const OwnedTensor here = this->copy(x);
      ops::rope_forward(this->ctx, {.q = heads(x), .q_out = heads(y), .rotary_dim = rotary, .pairing = pairing});
      ops::rope_forward(this->ctx, {.q = heads(here), .q_out = heads(here), .rotary_dim = rotary, .pairing = pairing});
      EXPECT_TRUE(this->same_bits(y, here));
    }
  }
}

TYPED_TEST(LargeOutput, SwigluAndGeglu) {
  const OwnedTensor a = this->filled(1), b = this->filled(2), dc = this->filled(3);
  const OwnedTensor c = this->make(), da = this->make(), db = this->make();
  OwnedTensor a_here = this->copy(a), b_here = this->copy(b), c_here = this->copy(a);
  ops::swiglu_forward(this->ctx, {.a = a, .b = b, .c = c});
  ops::swiglu_forward(this->ctx, {.a = c_here, .b = b, .c = c_here});
  EXPECT_TRUE(this->same_bits(c, c_here));
  ops::swiglu_backward(this->ctx, {.dc = dc, .a = a, .b = b, .da = da, .db = db});
  c_here = this->copy(dc);
  ops::swiglu_backward(this->ctx, {.dc = c_here, .a = a_here, .b = b_here, .da = a_here, .db = b_here, .c = c_here});
  EXPECT_TRUE(this->same_bits(da, a_here));
  EXPECT_TRUE(this->same_bits(db, b_here));
  EXPECT_TRUE(this->same_bits(c, c_here));
  a_here = this->copy(a), b_here = this->copy(b), c_here = this->copy(dc);
  ops::geglu_forward(this->ctx, {.a = a, .b = b, .c = c});
  ops::geglu_backward(this->ctx, {.dc = dc, .a = a, .b = b, .da = da, .db = db});
  ops::geglu_backward(this->ctx, {.dc = c_here, .a = a_here, .b = b_here, .da = a_here, .db = b_here, .c = c_here});
  EXPECT_TRUE(this->same_bits(da, a_here));
  EXPECT_TRUE(this->same_bits(db, b_here));
  EXPECT_TRUE(this->same_bits(c, c_here));
}

}  // namespace
}  // namespace tigon::test
