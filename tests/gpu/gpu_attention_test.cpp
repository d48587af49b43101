// attention on a GPU beyond the small cases of the tables: heads and lengths as models have them, q, k and v as parts
// of one buffer, and each way to run it by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "gpu/gpu_fixture.hpp"
#include "ops/case_runner.hpp"
#include "ops/expect_error.hpp"
#include "tigon/core/half.hpp"
#include "tigon/ops/attention.hpp"

namespace tigon::test {
namespace {

struct Sizes {
  int64_t batch, seq, heads, kv_heads, dim;
};

// Heads [first, first + count) of [batch, seq, heads of q, k and v, D].
Tensor part(const Tensor& qkv, int64_t first, int64_t count) { return qkv.slice(2, first, first + count); }

// A case whose q, k and v lie side by side, as one product makes them, and whose gradients do too.
bench::OpCase packed_case(const Sizes& n, bool causal, bool deterministic = true) {
  bench::OpCase c = bench::attention_table().make(std::to_string(n.batch) + "x" + std::to_string(n.seq) + "x" +
                                                  std::to_string(n.heads) + "x" + std::to_string(n.kv_heads) + "x" +
                                                  std::to_string(n.dim));
  c.flags = causal ? "packed" : "packed, not causal";
  c.inputs = {{.name = "qkv", .sizes = {n.batch, n.seq, n.heads + 2 * n.kv_heads, n.dim}, .differentiable = true}};
  c.forward = [=](const Context& ctx, const bench::Tensors& t) {
    ops::attention_forward(ctx, {.q = part(t["qkv"], 0, n.heads),
                                 .k = part(t["qkv"], n.heads, n.kv_heads),
                                 .v = part(t["qkv"], n.heads + n.kv_heads, n.kv_heads),
                                 .o = t["o"],
                                 .lse = t["lse"],
                                 .causal = causal});
  };
  c.backward = [=](const Context& ctx, const bench::Tensors& t) {
    ops::attention_backward(ctx, {.dout = t["do"],
                                  .q = part(t["qkv"], 0, n.heads),
                                  .k = part(t["qkv"], n.heads, n.kv_heads),
                                  .v = part(t["qkv"], n.heads + n.kv_heads, n.kv_heads),
                                  .o = t["o"],
                                  .lse = t["lse"],
                                  .dq = part(t["dqkv"], 0, n.heads),
                                  .dk = part(t["dqkv"], n.heads, n.kv_heads),
                                  .dv = part(t["dqkv"], n.heads + n.kv_heads, n.kv_heads),
                                  .causal = causal,
                                  .deterministic = deterministic});
  };
  c.unfused_forward = nullptr;
  c.unfused_backward = nullptr;
  // Tensor cores take 16-bit operands: P is rounded to the storage type before P·V and Pᵀ·dO, dS before dS·K and dSᵀ·Q.
  // That is a rounding more than the CPU has, on every term of sums whose result is no larger than its terms.
  c.tolerance = 6.0;
  return c;
}

// cuDNN builds two plans for each, which takes longer than all else here: so each shape has one mask and one type.
struct PackedCase {
  Sizes sizes;
  bool causal;
  DType dtype;
};
constexpr PackedCase kPackedCases[] = {
    {{1, 1, 4, 1, 64}, true, DType::bf16},    {{2, 17, 8, 1, 64}, false, DType::f16},
    {{1, 128, 4, 2, 128}, true, DType::f16},  {{2, 100, 4, 1, 96}, true, DType::bf16},
    {{1, 200, 8, 1, 128}, true, DType::bf16}, {{1, 130, 4, 4, 80}, false, DType::bf16},
    {{3, 65, 2, 1, 24}, true, DType::bf16},
};

// The tests run under each value of TIGON_ATTENTION; an empty one leaves the choice to the backend.
class GpuAttention : public GpuTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    (void)setenv("TIGON_ATTENTION", GetParam(), 1);
    if (!IsSkipped() && !runs(packed_case({1, 128, 2, 2, 64}, true), DType::bf16)) GTEST_SKIP() << "there is no cuDNN";
  }
  void TearDown() override { (void)unsetenv("TIGON_ATTENTION"); }

  // cuDNN alone does not have every shape, and need not be there. Everything else runs all of them.
  static bool runs(const bench::OpCase& c, DType dtype) {
    return std::string(GetParam()) != "cudnn" || cannot_run(c, Variant::fused, kGpu, dtype).empty();
  }
};

TEST_P(GpuAttention, PartsOfOneBufferAgreeWithReference) {
  int ran = 0;
  for (const PackedCase& p : kPackedCases) {
    const bench::OpCase c = packed_case(p.sizes, p.causal);
    if (!runs(c, p.dtype)) continue;
    ++ran;
    check_on_device(c, p.dtype, Variant::fused, Layout::packed, kGpu);
  }
  EXPECT_GE(ran, 4);
}

TEST_P(GpuAttention, ALongSequenceAgreesWithReference) {
  check_on_device(packed_case({1, 1000, 4, 1, 64}, true), DType::bf16, Variant::fused, Layout::packed, kGpu);
  check_on_device(packed_case({1, 700, 2, 1, 128}, true), DType::f16, Variant::fused, Layout::packed, kGpu);
  check_on_device(packed_case({1, 520, 2, 2, 48}, false), DType::bf16, Variant::fused, Layout::packed, kGpu);
}

// Documents shorter than a tile of any kernel and longer than several, in rows that have others.
bench::OpCase documents_case(const std::string& shape) {
  bench::OpCase c = bench::attention_table().make(shape);
  c.tolerance = packed_case({1, 1, 1, 1, 64}, true).tolerance;
  return c;
}

TEST_P(GpuAttention, DocumentsOfARowAgreeWithReference) {
  int ran = 0;
  for (const char* shape : {"1x1000x4x1x64:documents=90", "2x700x2x2x128:documents=150", "3x300x4x2x96:documents=3",
                            "2x513x4x1x32:documents=257", "2x129x2x1x64:documents=1", "1x640x2x1x64:documents=640",
                            "4x65x2x1x24:documents=40"}) {
    const bench::OpCase c = documents_case(shape);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (!runs(c, dtype)) continue;
      ++ran;
      check_on_device(c, dtype, Variant::fused, Layout::packed, kGpu);
      check_repeats_on_device(c, dtype, kGpu);
    }
  }
  EXPECT_EQ(ran, std::string(GetParam()) == "cudnn" ? 0 : 14);
}

TEST_P(GpuAttention, RunsAndGraphReplaysGiveTheSameBits) {
  int ran = 0;
  for (const Sizes& n : {Sizes{2, 1000, 8, 2, 64}, {1, 1000, 8, 1, 128}, {2, 513, 4, 4, 96}, {2, 300, 4, 2, 32}}) {
    for (const bool causal : {true, false}) {
      const bench::OpCase c = packed_case(n, causal);
      const DType dtype = causal ? DType::bf16 : DType::f16;
      if (!runs(c, dtype)) continue;
      ++ran;
      check_repeats_on_device(c, dtype, kGpu);
    }
  }
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(By, GpuAttention, testing::Values("", "own", "sm80", "cudnn"), [](const auto& info) {
  return std::string(info.param).empty() ? "default" : std::string(info.param);
});

class GpuAttentionAlone : public GpuAttention {};

// In f32, and in 16 bits where D or the layout rules tensor cores out.
TEST_P(GpuAttentionAlone, PlainKernelsAgreeWithReference) {
  for (const Sizes& n : {Sizes{1, 200, 4, 1, 64}, {1, 129, 2, 1, 128}, {1, 100, 2, 2, 200}, {1, 70, 2, 1, 300}}) {
    for (const bool causal : {true, false}) {
      check_on_device(packed_case(n, causal), DType::f32, Variant::fused, Layout::packed, kGpu);
      check_on_device(packed_case(n, causal), DType::bf16, Variant::fused, Layout::odd, kGpu);
    }
  }
}

TEST_P(GpuAttentionAlone, PlainKernelsKeepDocumentsApart) {
  for (const char* shape : {"2x200x4x1x64:documents=50", "2x150x2x1x200:documents=70", "1x129x2x2x8:documents=2"}) {
    check_on_device(documents_case(shape), DType::f32, Variant::fused, Layout::packed, kGpu);
    check_on_device(documents_case(shape), DType::bf16, Variant::fused, Layout::odd, kGpu);
  }
}

// A row of one document is one whether or not it says so, to the bit: what is not masked is computed alike.
TEST_P(GpuAttentionAlone, ADocumentAsLongAsItsRowIsTheRow) {
  (void)setenv("TIGON_ATTENTION", "own", 1);
  for (const char* sizes : {"2x1000x8x2x64", "1x300x4x4x128"}) {
    std::vector<std::vector<std::byte>> bits[2];
    for (const bool says : {false, true}) {
      bench::OpCase c = bench::attention_table().make(sizes + std::string(":documents=1000"));
      for (bench::Run* run : {&c.forward, &c.backward}) {
        if (says) break;
        *run = [call = *run](const Context& ctx, bench::Tensors t) {
          t.set("starts", Tensor{});
          call(ctx, t);
        };
      }
      CaseData data(c, DType::bf16, DType::bf16, Layout::packed, kGpu);
      DeviceArena arena(kGpu);
      data.run({.device = kGpu, .memory = &arena}, Variant::fused);
      bits[says] = data.result_bits();
    }
    EXPECT_TRUE(bits[0] == bits[1]) << sizes;
  }
}

TEST_P(GpuAttentionAlone, GradientsThatMayRaceAgreeWithReference) {
  for (const Sizes& n : {Sizes{2, 200, 4, 1, 64}, {1, 129, 4, 4, 128}}) {
    check_on_device(packed_case(n, true, false), DType::bf16, Variant::fused, Layout::packed, kGpu);
  }
}

// All scores are equal and large, so that every key counts alike, the first seen and the last: half of the values are
// 1 and half −1.
TEST_P(GpuAttentionAlone, AMaximumThatStaysShrinksNothing) {
  constexpr int64_t kSeq = 8192, kDim = 64;
  constexpr float kEach = 12.0f;
  (void)setenv("TIGON_ATTENTION", "own", 1);
  DeviceArena arena(kGpu);
  const Context ctx{.device = kGpu, .memory = &arena};
  const auto tensor = [&](DType dtype, std::initializer_list<int64_t> sizes) {
    return OwnedTensor(ctx, "tensor", dtype, sizes, MemoryClass::other);
  };
  const OwnedTensor q = tensor(DType::bf16, {1, kSeq, 1, kDim}), v = tensor(DType::bf16, {1, kSeq, 1, kDim});
  const OwnedTensor o = tensor(DType::bf16, {1, kSeq, 1, kDim}), lse = tensor(DType::f32, {1, 1, kSeq});
  std::vector<bf16> keys(kSeq * kDim, bf16(kEach)), values(keys.size(), bf16(-1.0f)), got(keys.size());
  std::fill_n(values.begin(), values.size() / 2, bf16(1.0f));
  std::vector<float> sums(kSeq);
  device_copy(ctx, q.view.data, keys.data(), q.view.bytes());
  device_copy(ctx, v.view.data, values.data(), v.view.bytes());
  ops::attention_forward(
      ctx, {.q = q.view, .k = q.view, .v = v.view, .o = o.view, .lse = lse.view, .scale = 1.0, .causal = false});
  device_copy(ctx, got.data(), o.view.data, o.view.bytes());
  device_copy(ctx, sums.data(), lse.view.data, lse.view.bytes());
  synchronize(ctx);
  const double score = kDim * double{kEach} * double{kEach};
  for (const size_t i : {size_t{0}, got.size() / 2, got.size() - 1})
    EXPECT_NEAR(static_cast<float>(got[i]), 0.0f, 1e-4f);
  for (const size_t i : {size_t{0}, sums.size() - 1}) EXPECT_NEAR(sums[i], score + std::log(double{kSeq}), 2e-3);
}

// More heads than are worked on at a time: those that follow others in the same memory are not touched by them.
TEST_P(GpuAttentionAlone, AmongManyOthersAHeadHasTheBitsThatItHasAlone) {
  struct ManyHeads {
    Sizes sizes;
    bool causal;
  };
  (void)setenv("TIGON_ATTENTION", "own", 1);
  for (const auto& [n, causal] : {ManyHeads{{4, 2048, 24, 12, 64}, true}, {{5, 1100, 20, 10, 128}, false}}) {
    DeviceArena arena(kGpu);
    const Context ctx{.device = kGpu, .memory = &arena};
    std::mt19937 random(1);
    const auto tensor = [&](int64_t batch, int64_t heads) {
      return OwnedTensor(ctx, "tensor", DType::bf16, {batch, n.seq, heads, n.dim}, MemoryClass::other);
    };
    const auto random_tensor = [&](int64_t heads) {
      OwnedTensor t = tensor(n.batch, heads);
      std::vector<bf16> values(static_cast<size_t>(t.view.elements()));
      for (bf16& value : values) value = bf16(static_cast<float>(random() % 512) / 256.0f - 1.0f);
      device_copy(ctx, t.view.data, values.data(), t.view.bytes());
      synchronize(ctx);
      return t;
    };
    const OwnedTensor q = random_tensor(n.heads), k = random_tensor(n.kv_heads), v = random_tensor(n.kv_heads);
    const OwnedTensor dout = random_tensor(n.heads), o = tensor(n.batch, n.heads);
    const OwnedTensor lse(ctx, "lse", DType::f32, {n.batch, n.heads, n.seq}, MemoryClass::other);
    ops::attention_forward(ctx,
                           {.q = q.view, .k = k.view, .v = v.view, .o = o.view, .lse = lse.view, .causal = causal});
    const auto gradients = [&](int64_t first, int64_t count) {
      const auto of = [&](const OwnedTensor& t) { return t.view.slice(0, first, first + count); };
      const OwnedTensor dq = tensor(count, n.heads), dk = tensor(count, n.kv_heads), dv = tensor(count, n.kv_heads);
      ops::attention_backward(ctx, {.dout = of(dout),
                                    .q = of(q),
                                    .k = of(k),
                                    .v = of(v),
                                    .o = of(o),
                                    .lse = of(lse),
                                    .dq = dq.view,
                                    .dk = dk.view,
                                    .dv = dv.view,
                                    .causal = causal});
      std::vector<std::vector<uint16_t>> bits;
      for (const OwnedTensor* t : {&dq, &dk, &dv}) {
        bits.emplace_back(static_cast<size_t>(t->view.elements()));
        device_copy(ctx, bits.back().data(), t->view.data, t->view.bytes());
      }
      synchronize(ctx);
      return bits;
    };
    const auto together = gradients(0, n.batch);
    for (int64_t batch = 0; batch < n.batch; ++batch) {
      const auto alone = gradients(batch, 1);
      for (size_t i = 0; i < alone.size(); ++i) {
        const auto begin = together[i].begin() + batch * static_cast<int64_t>(alone[i].size());
        EXPECT_TRUE(std::equal(alone[i].begin(), alone[i].end(), begin)) << "batch " << batch << ", gradient " << i;
      }
    }
  }
}

TEST_P(GpuAttentionAlone, NeverHoldsTheScoreMatrix) {
  constexpr int64_t kSeq = 8192, kHeads = 4, kDim = 64;
  for (const bool deterministic : {true, false}) {
    Ledger ledger;
    MeasureArena measure(ledger);
    const Context ctx{.device = kGpu, .memory = &measure};
    const Tensor x = Tensor::contiguous(nullptr, DType::bf16, {1, kSeq, kHeads, kDim}, kGpu);
    const Tensor lse = Tensor::contiguous(nullptr, DType::f32, {1, kHeads, kSeq}, kGpu);
    ops::attention_forward(ctx, {.q = x, .k = x, .v = x, .o = x, .lse = lse});
    ops::attention_backward(ctx, {.dout = x,
                                  .q = x,
                                  .k = x,
                                  .v = x,
                                  .o = x,
                                  .lse = lse,
                                  .dq = x,
                                  .dk = x,
                                  .dv = x,
                                  .deterministic = deterministic});
    EXPECT_LE(ledger.peak_bytes(), 16 * kSeq * kHeads * kDim + (1 << 20));
  }
}

TEST_P(GpuAttentionAlone, AnUnknownChoiceIsNamed) {
  (void)setenv("TIGON_ATTENTION", "fastest", 1);
  DeviceArena arena{kGpu};
  const Context ctx{.device = kGpu, .memory = &arena};
  const Buffer memory = ctx.scratch("x and o", 256);
  const Tensor x = Tensor::contiguous(memory.data(), DType::bf16, {1, 1, 1, 64}, kGpu);
  const Tensor o = Tensor::contiguous(memory.as<bf16>() + 64, DType::bf16, {1, 1, 1, 64}, kGpu);
  expect_error([&] { ops::attention_forward(ctx, {.q = x, .k = x, .v = x, .o = o}); }, ErrorCode::invalid_argument,
               "TIGON_ATTENTION");
}

INSTANTIATE_TEST_SUITE_P(By, GpuAttentionAlone, testing::Values(""), [](const auto&) { return "default"; });

}  // namespace
}  // namespace tigon::test
