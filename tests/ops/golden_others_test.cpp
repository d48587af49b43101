// The ops against PyTorch: add_rmsnorm, layernorm, rope, the gated activations, softmax, linear and the losses.
#include "golden/golden.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/cross_entropy.hpp"
#include "tigon/ops/fused_linear_cross_entropy.hpp"
#include "tigon/ops/geglu.hpp"
#include "tigon/ops/layernorm.hpp"
#include "tigon/ops/linear.hpp"
#include "tigon/ops/rope.hpp"
#include "tigon/ops/softmax.hpp"
#include "tigon/ops/swiglu.hpp"

namespace tigon::test {
namespace {

struct GoldenOthers : testing::Test {
  HeapArena heap;
  Context ctx{.memory = &heap};
};

TEST_F(GoldenOthers, AddRmsnorm) {
  for (GoldenCase& c : golden_cases("add_rmsnorm")) {
    const Tensor rstd = c.spare({c.in("x").sizes[0]});
    const Tensor residual_out = c.out("residual_out");
    ops::add_rmsnorm_forward(ctx, {.x = c.in("x"),
                                   .residual = c.in("residual"),
                                   .weight = c.in("weight"),
                                   .residual_out = residual_out,
                                   .y = c.out("y"),
                                   .rstd = rstd,
                                   .eps = c.scalar("eps")});
    ops::add_rmsnorm_backward(ctx, {.dy = c.in("dy"),
                                    .dresidual_out = c.in("dresidual_out"),
                                    .residual_out = residual_out,
                                    .weight = c.in("weight"),
                                    .rstd = rstd,
                                    .dx = c.out("dx"),
                                    .dweight = c.out("dweight")});
    c.compare(4);
  }
}

TEST_F(GoldenOthers, Layernorm) {
  for (GoldenCase& c : golden_cases("layernorm")) {
    const Tensor mean = c.spare({c.in("x").sizes[0]}), rstd = c.spare({c.in("x").sizes[0]});
    ops::layernorm_forward(ctx, {.x = c.in("x"),
                                 .weight = c.in("weight"),
                                 .bias = c.in("bias"),
                                 .y = c.out("y"),
                                 .mean = mean,
                                 .rstd = rstd,
                                 .eps = c.scalar("eps")});
    ops::layernorm_backward(ctx, {.dy = c.in("dy"),
                                  .x = c.in("x"),
                                  .weight = c.in("weight"),
                                  .mean = mean,
                                  .rstd = rstd,
                                  .dx = c.out("dx"),
                                  .dweight = c.out("dweight"),
                                  .dbias = c.out("dbias")});
    c.compare(4);
  }
}

TEST_F(GoldenOthers, Rope) {
  for (GoldenCase& c : golden_cases("rope")) {
    ops::Rope from_tables{.q = c.in("q"), .k = c.in("k"), .q_out = c.out("q_out"), .k_out = c.out("k_out")};
    from_tables.cos = c.in("cos"), from_tables.sin = c.in("sin");
    from_tables.rotary_dim = static_cast<int64_t>(c.scalar("rotary_dim"));
    from_tables.pairing = static_cast<ops::RopePairing>(c.scalar("pairing"));
    ops::Rope from_positions = from_tables;
    from_positions.cos = from_positions.sin = {};
    from_positions.positions = c.in("positions");
    from_positions.theta = c.scalar("theta");
    from_positions.scaling = {.kind = static_cast<ops::RopeScalingKind>(c.scalar("kind")),
                              .factor = c.scalar("factor"),
                              .low_freq_factor = c.scalar("low"),
                              .high_freq_factor = c.scalar("high"),
                              .original_max_position = c.scalar("original")};
    // In f32 a position of 1000 puts a thousand units of the angle's own rounding into cos and sin.
    const double angle_units = c.dtype() == DType::f32 ? 512 : 4;
    for (ops::Rope* args : {&from_tables, &from_positions}) {
      const double units = args == &from_tables ? 4 : angle_units;
      args->q = c.in("q"), args->k = c.in("k");
      args->q_out = c.out("q_out"), args->k_out = c.out("k_out");
      ops::rope_forward(ctx, *args);
      c.compare(units);
      args->q = c.in("dq_out"), args->k = c.in("dk_out");
      args->q_out = c.out("dq"), args->k_out = c.out("dk");
      ops::rope_backward(ctx, *args);
      c.compare(units);
    }
  }
}

TEST_F(GoldenOthers, Swiglu) {
  for (GoldenCase& c : golden_cases("swiglu")) {
    ops::swiglu_forward(ctx, {.a = c.in("a"), .b = c.in("b"), .c = c.out("c")});
    ops::swiglu_backward(ctx, {.dc = c.in("dc"), .a = c.in("a"), .b = c.in("b"), .da = c.out("da"), .db = c.out("db")});
    c.compare(4);
  }
}

TEST_F(GoldenOthers, Geglu) {
  for (GoldenCase& c : golden_cases("geglu")) {
    const auto gelu = static_cast<ops::Gelu>(c.scalar("gelu"));
    ops::geglu_forward(ctx, {.a = c.in("a"), .b = c.in("b"), .c = c.out("c"), .gelu = gelu});
    ops::geglu_backward(
        ctx, {.dc = c.in("dc"), .a = c.in("a"), .b = c.in("b"), .da = c.out("da"), .db = c.out("db"), .gelu = gelu});
    // PyTorch's own 1 + erf and 1 + tanh cancel where a is far below zero.
    c.compare(c.dtype() == DType::f32 ? 16 : 4);
  }
}

TEST_F(GoldenOthers, Softmax) {
  for (GoldenCase& c : golden_cases("softmax")) {
    ops::softmax_forward(ctx, {.x = c.in("x"), .y = c.out("y"), .scale = c.scalar("scale")});
    ops::softmax_backward(ctx, {.dy = c.in("dy"), .y = c.in("y"), .dx = c.out("dx"), .scale = c.scalar("scale")});
    c.compare(4);
  }
}

TEST_F(GoldenOthers, Linear) {
  for (GoldenCase& c : golden_cases("linear")) {
    ops::linear_forward(ctx, {.x = c.in("x"), .weight = c.in("weight"), .bias = c.in("bias"), .y = c.out("y")});
    ops::linear_backward(ctx, {.dy = c.in("dy"),
                               .x = c.in("x"),
                               .weight = c.in("weight"),
                               .dx = c.out("dx"),
                               .dweight = c.out("dweight"),
                               .dbias = c.out("dbias")});
    c.compare(4);
  }
}

ops::CrossEntropyOptions loss_options(const GoldenCase& c) {
  return {.label_smoothing = c.scalar("label_smoothing"),
          .z_loss = c.scalar("z_loss"),
          .softcap = c.scalar("softcap"),
          .reduction = static_cast<ops::Reduction>(c.scalar("reduction"))};
}

TEST_F(GoldenOthers, CrossEntropy) {
  for (GoldenCase& c : golden_cases("cross_entropy")) {
    const ops::CrossEntropyOptions options = loss_options(c);
    const Tensor lse = c.spare({c.in("logits").sizes[0]});
    ops::cross_entropy_forward(ctx, {.logits = c.in("logits"),
                                     .target = c.in("target"),
                                     .class_weight = c.in("class_weight"),
                                     .options = options,
                                     .out = {.loss = c.out("loss"), .lse = lse}});
    ops::cross_entropy_backward(ctx, {.dloss = c.in("dloss"),
                                      .logits = c.in("logits"),
                                      .target = c.in("target"),
                                      .class_weight = c.in("class_weight"),
                                      .lse = lse,
                                      .options = options,
                                      .dlogits = c.out("dlogits")});
    c.compare(4);
  }
}

TEST_F(GoldenOthers, FusedLinearCrossEntropy) {
  for (GoldenCase& c : golden_cases("fused_linear_cross_entropy")) {
    for (const int64_t chunk : {0, 3}) {
      ops::fused_linear_cross_entropy_forward(ctx, {.x = c.in("x"),
                                                    .weight = c.in("weight"),
                                                    .bias = c.in("bias"),
                                                    .target = c.in("target"),
                                                    .class_weight = c.in("class_weight"),
                                                    .dloss = c.in("dloss"),
                                                    .options = loss_options(c),
                                                    .chunk = {.tokens = chunk},
                                                    .out = {.loss = c.out("loss")},
                                                    .dx = c.out("dx"),
                                                    .dweight = c.out("dweight"),
                                                    .dbias = c.out("dbias")});
      c.compare(c.dtype() == DType::f32 ? 16 : 4);
    }
  }
}

}  // namespace
}  // namespace tigon::test
