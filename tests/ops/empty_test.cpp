// Tensors without elements: nothing is walked over, and gradients over no tokens are zero all the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "tigon/memory/arena.hpp"
#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/elementary.hpp"
#include "tigon/ops/embedding.hpp"
#include "tigon/ops/fused_linear_cross_entropy.hpp"
#include "tigon/ops/geglu.hpp"
#include "tigon/ops/layernorm.hpp"
#include "tigon/ops/linear.hpp"
#include "tigon/ops/rmsnorm.hpp"
#include "tigon/ops/rope.hpp"
#include "tigon/ops/softmax.hpp"
#include "tigon/ops/swiglu.hpp"

namespace tigon::test {
namespace {

class EmptyOf : public testing::TestWithParam<DType> {
 protected:
  HeapArena heap;
  Context ctx{.memory = &heap};
};

// A loop over so many rows takes the better part of a minute, even one that finds nothing in them.
TEST_P(EmptyOf, RowsWithoutColumnsTakeNoTime) {
  constexpr int64_t kRows = int64_t{1} << 34;
  const DType dtype = GetParam();
  const Tensor rows = Tensor::contiguous(nullptr, dtype, {kRows, 0});
  const Tensor no_heads = Tensor::contiguous(nullptr, dtype, {kRows, 0, 8});
  const Tensor nothing = Tensor::contiguous(nullptr, dtype, {0});
  const Tensor grid = Tensor::contiguous(nullptr, dtype, {1 << 17, 1 << 17, 1, 0});
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"rmsnorm", [&] { ops::rmsnorm_forward(ctx, {.x = rows, .weight = nothing, .y = rows}); }},
      {"add_rmsnorm",
       [&] { ops::add_rmsnorm_forward(ctx, {.x = rows, .residual = rows, .residual_out = rows, .y = rows}); }},
      {"layernorm", [&] { ops::layernorm_forward(ctx, {.x = rows, .y = rows}); }},
      {"rope", [&] { ops::rope_forward(ctx, {.q = no_heads, .q_out = no_heads}); }},
      {"rope's gradient", [&] { ops::rope_backward(ctx, {.q = no_heads, .q_out = no_heads}); }},
      {"swiglu", [&] { ops::swiglu_forward(ctx, {.a = rows, .b = rows, .c = rows}); }},
      {"swiglu's gradient",
       [&] { ops::swiglu_backward(ctx, {.dc = rows, .a = rows, .b = rows, .da = rows, .db = rows}); }},
      {"geglu", [&] { ops::geglu_forward(ctx, {.a = rows, .b = rows, .c = rows}); }},
      {"geglu's gradient",
       [&] { ops::geglu_backward(ctx, {.dc = rows, .a = rows, .b = rows, .da = rows, .db = rows}); }},
      {"softmax", [&] { ops::softmax_forward(ctx, {.x = rows, .y = rows}); }},
      {"softmax's gradient", [&] { ops::softmax_backward(ctx, {.dy = rows, .y = rows, .dx = rows}); }},
      {"linear",
       [&] {
         ops::linear_forward(ctx, {.x = rows, .weight = Tensor::contiguous(nullptr, dtype, {0, 0}), .y = rows});
       }},
      {"unary", [&] { ops::unary(ctx, {.op = ops::UnaryOp::exp, .x = grid, .y = grid}); }},
      {"binary", [&] { ops::binary(ctx, {.op = ops::BinaryOp::add, .a = grid, .b = grid, .y = grid}); }},
      {"reduce", [&] { ops::reduce(ctx, {.x = rows, .y = nothing, .over_rows = true}); }},
  };
  for (const auto& [name, call] : calls) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1)) << name;
  }
}

TEST_P(EmptyOf, GradientsOverNoTokensAreZero) {
  const DType dtype = GetParam();
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const DType index = DType::i64;
  constexpr int64_t kVocab = 3, kHidden = 5;
  const auto none = [&](DType type) { return Tensor::contiguous(nullptr, type, {0}); };
  const Tensor x = Tensor::contiguous(nullptr, dtype, {0, kHidden});
  const Tensor logits = Tensor::contiguous(nullptr, dtype, {0, kVocab});
  std::vector<double> matrix(kVocab * kHidden), dloss(1, 1.0);
  const auto of = [](std::vector<double>& memory, DType type, std::initializer_list<int64_t> sizes) {
    return Tensor::contiguous(memory.data(), type, sizes);
  };
  const Tensor weight = of(matrix, dtype, {kVocab, kHidden});
  // Every byte that a gradient has is zero afterwards; none of them was.
  std::vector<double> dmatrix(kVocab * kHidden), dvector(kHidden), dvector2(kHidden);
  const auto expect_zeros = [&](const char* name, const std::function<void()>& call,
                                std::initializer_list<Tensor> gradients) {
    for (const Tensor& t : gradients) std::fill_n(t.as<unsigned char>(), t.bytes(), 0x3c);
    call();
    for (const Tensor& t : gradients) {
      EXPECT_EQ(std::count(t.as<unsigned char>(), t.as<unsigned char>() + t.bytes(), 0), t.bytes()) << name;
    }
  };
  const Tensor dhidden = of(dvector, dtype, {kHidden}), dhidden2 = of(dvector2, dtype, {kHidden});
  const Tensor dclasses = of(dvector, dtype, {kVocab}), dweight = of(dmatrix, dtype, {kVocab, kHidden});
  expect_zeros("rmsnorm",
               [&] { ops::rmsnorm_backward(ctx, {.dy = x, .x = x, .rstd = none(wide), .dx = x, .dweight = dhidden}); },
               {dhidden});
  expect_zeros("add_rmsnorm",
               [&] {
                 ops::add_rmsnorm_backward(
                     ctx, {.dy = x, .residual_out = x, .rstd = none(wide), .dx = x, .dweight = dhidden});
               },
               {dhidden});
  expect_zeros(
      "layernorm",
      [&] {
        ops::layernorm_backward(
            ctx,
            {.dy = x, .x = x, .mean = none(wide), .rstd = none(wide), .dx = x, .dweight = dhidden, .dbias = dhidden2});
      },
      {dhidden, dhidden2});
  expect_zeros("linear",
               [&] { ops::linear_backward(ctx, {.dy = logits, .x = x, .dweight = dweight, .dbias = dclasses}); },
               {dweight, dclasses});
  expect_zeros("embedding", [&] { ops::embedding_backward(ctx, {.ids = none(index), .dy = x, .dweight = dweight}); },
               {dweight});
  expect_zeros("fused_linear_cross_entropy",
               [&] {
                 ops::fused_linear_cross_entropy_backward(ctx, {.x = x,
                                                                .weight = weight,
                                                                .target = none(index),
                                                                .dloss = of(dloss, wide, {1}),
                                                                .dx = x,
                                                                .dweight = dweight,
                                                                .dbias = dclasses});
               },
               {dweight, dclasses});
}

INSTANTIATE_TEST_SUITE_P(Types, EmptyOf, testing::Values(DType::f32, DType::bf16, DType::f64),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace tigon::test
