// The ops against PyTorch: rmsnorm, embedding, attention, adamw, global_norm.
#include "golden/golden.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/adamw.hpp"
#include "tigon/ops/attention.hpp"
#include "tigon/ops/embedding.hpp"
#include "tigon/ops/global_norm.hpp"
#include "tigon/ops/rmsnorm.hpp"

namespace tigon::test {
namespace {

struct Golden : testing::Test {
  HeapArena heap;
  Context ctx{.memory = &heap};
};

TEST_F(Golden, Rmsnorm) {
  for (GoldenCase& c : golden_cases("rmsnorm")) {
    const auto casting = static_cast<ops::NormCasting>(c.scalar("casting"));
    const Tensor rstd = c.spare({c.in("x").sizes[0]});
    ops::rmsnorm_forward(ctx, {.x = c.in("x"),
                               .weight = c.in("weight"),
                               .y = c.out("y"),
                               .rstd = rstd,
                               .eps = c.scalar("eps"),
                               .offset = c.scalar("offset"),
                               .casting = casting});
    c.compare(2);
    ops::rmsnorm_backward(ctx, {.dy = c.in("dy"),
                                .x = c.in("x"),
                                .weight = c.in("weight"),
                                .rstd = rstd,
                                .dx = c.out("dx"),
                                .dweight = c.out("dweight"),
                                .offset = c.scalar("offset"),
                                .casting = casting});
    c.compare(4);
  }
}

TEST_F(Golden, Embedding) {
  for (GoldenCase& c : golden_cases("embedding")) {
    const double scale = c.scalar("scale");
    ops::embedding_forward(ctx, {.ids = c.in("ids"), .weight = c.in("weight"), .y = c.out("y"), .scale = scale});
    ops::embedding_backward(ctx, {.ids = c.in("ids"), .dy = c.in("dy"), .dweight = c.out("dweight"), .scale = scale});
    c.compare(2);
  }
}

TEST_F(Golden, Attention) {
  for (GoldenCase& c : golden_cases("attention")) {
    const bool causal = c.scalar("causal") != 0;
    const double scale = c.scalar("scale");
    const Tensor q = c.in("q"), k = c.in("k"), v = c.in("v");
    const Tensor lse = c.spare({q.sizes[0], q.sizes[2], q.sizes[1]});
    ops::attention_forward(
        ctx, {.q = q, .k = k, .v = v, .o = c.out("o"), .lse = c.out("lse"), .scale = scale, .causal = causal});
    const double units = c.dtype() == DType::f32 ? 16 : 4;
    c.compare(units);
    // Backward reads forward's own results.
    const Tensor o = c.in("o");
    ops::attention_forward(ctx, {.q = q, .k = k, .v = v, .o = o, .lse = lse, .scale = scale, .causal = causal});
    ops::attention_backward(ctx, {.dout = c.in("dout"),
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .o = o,
                                  .lse = lse,
                                  .dq = c.out("dq"),
                                  .dk = c.out("dk"),
                                  .dv = c.out("dv"),
                                  .scale = scale,
                                  .causal = causal});
    c.compare(units);
  }
}

TEST_F(Golden, AdamwOverThreeSteps) {
  for (GoldenCase& c : golden_cases("adamw")) {
    std::vector<std::byte> m(c.tensors.at("m3").bytes.size()), v(m.size());
    Tensor moment1 = c.in("m3"), moment2 = c.in("v3");
    moment1.data = m.data(), moment2.data = v.data();
    Tensor param = c.in("param");
    for (int step = 1; step <= 3; ++step) {
      ops::adamw(ctx, {.param = param,
                       .grad = c.in("grad" + std::to_string(step)),
                       .m = moment1,
                       .v = moment2,
                       .lr = c.scalar("lr"),
                       .beta1 = c.scalar("beta1"),
                       .beta2 = c.scalar("beta2"),
                       .eps = c.scalar("eps"),
                       .weight_decay = c.scalar("weight_decay"),
                       .step = step});
      // PyTorch rounds a bf16 parameter twice a step, for the decay and for the update.
      const Tensor got = c.out("param" + std::to_string(step));
      std::memcpy(got.data, param.data, static_cast<size_t>(param.bytes()));
      c.compare(4);
    }
    std::memcpy(c.out("m3").data, m.data(), m.size());
    std::memcpy(c.out("v3").data, v.data(), v.size());
    c.compare(4);
  }
}

TEST_F(Golden, GlobalNorm) {
  for (GoldenCase& c : golden_cases("global_norm")) {
    const Tensor tensors[] = {c.in("x0"), c.in("x1"), c.in("x2")};
    ops::global_norm(
        ctx, {.tensors = tensors, .norm = c.out("norm"), .clip = c.out("clip"), .max_norm = c.scalar("max_norm")});
    c.compare(c.dtype() == DType::f32 ? 4 : 0.01);
  }
}

}  // namespace
}  // namespace tigon::test
