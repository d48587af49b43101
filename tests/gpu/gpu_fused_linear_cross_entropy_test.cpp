// fused_linear_cross_entropy on a GPU beyond the small cases of the tables: how exact dweight is, tokens that do not
// count, and the vocabularies of models.
#include <gtest/gtest.h>

#include <cstdio>

#include <algorithm>
#include <cmath>

#include "gpu/gpu_fixture.hpp"
#include "ops/case_runner.hpp"
#include "tigon/core/error.hpp"

namespace tigon::test {
namespace {

bench::OpCase make(const std::string& shape) { return bench::fused_linear_cross_entropy_table().make(shape); }

class GpuFusedLinearCrossEntropy : public GpuTest {
 protected:
  Context gpu() { return {.device = kGpu, .memory = &device_}; }
  Context cpu() { return {.memory = &heap_}; }

 private:
  HeapArena heap_;
  DeviceArena device_{kGpu};
};

// ‖got − exact‖ / ‖exact‖.
double relative_error(const std::vector<double>& got, const std::vector<double>& exact) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += (got[i] - exact[i]) * (got[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return std::sqrt(difference / size);
}

// The unfused form rounds dweight once. A bf16 dweight keeps its sums finer than that (Hopper); elsewhere a few chunks
// round it once each, in the lean walk up to eight, and with more it is summed in f32.
TEST_F(GpuFusedLinearCrossEntropy, DweightIsAboutAsExactAsUnfused) {
  const auto compare = [&](const std::string& shape, DType dtype, std::vector<std::pair<std::string, double>> chunks) {
    CaseData exact(make(shape), DType::f64, dtype);
    make(shape).backward(cpu(), exact.tensors());
    const auto error = [&](const std::string& options, Variant variant) {
      CaseData data(make(shape + options), dtype, dtype, Layout::packed, kGpu);
      data.run(gpu(), variant);
      return relative_error(data.values("dweight"), exact.values("dweight"));
    };
    const double unfused = error("", Variant::unfused);
    for (const auto& [options, at_most] : chunks) {
      const double fused = error(options, Variant::fused);
      std::printf("dweight of %s%s in %s: %.2f times the unfused error of %.2e\n", shape.c_str(), options.c_str(),
                  std::string(to_string(dtype)).c_str(), fused / unfused, unfused);
      EXPECT_LE(fused, at_most * unfused) << shape << options << ", unfused " << unfused;
    }
  };
  // Far more classes than tokens, so that one token makes most of a class's row; what the others add to it is, beside
  // that, as much as with 8192 tokens of 128256 classes: √1024/45712.
  for (const DType dtype : {DType::bf16, DType::f16}) {
    compare("1024x32x45712", dtype,
            {{":chunk=512", 1.5},
             {":chunk=342", 1.1},
             {":chunk=256", 1.1},
             {":chunk=128", 1.1},
             {":chunk=32", 1.2},
             {":chunk=128:f32dw", 1.1},
             {":lean:chunk=256", 1.5}});
  }
  // Each chunk adds as much to every row: the worst case, in which roundings of a 16-bit sum show.
  for (const DType dtype : {DType::bf16, DType::f16}) {
    compare("1024x128x2048", dtype,
            {{":chunk=512", 1.5},
             {":chunk=342", 1.1},
             {":chunk=256", 1.2},
             {":chunk=128", 1.2},
             {":chunk=32", 1.2},
             {":chunk=128:f32dw", 1.1}});
  }
}

// Products large enough to be padded: an odd vocabulary, in one chunk, in two and in four panels of which the last is
// odd; and an odd hidden size, in three chunks, so that a 16-bit dweight is summed apart, and in a panel.
TEST_F(GpuFusedLinearCrossEntropy, OddSizesAreTheSameLoss) {
  for (const char* shape : {"520x40x32001", "1040x40x32003:chunk=520", "1040x40x64005:lean", "1560x41x32001:chunk=520",
                            "520x41x32005:lean"}) {
    // Not in f16: over this many tokens and classes most of dlogits is below its smallest value.
    check_on_device(make(shape), DType::bf16, Variant::fused, Layout::packed, kGpu);
    for (const DType dtype : {DType::bf16, DType::f16}) check_repeats_on_device(make(shape), dtype, kGpu);
  }
  // With all options at once: the bias has a tail as well.
  for (const bench::OpCase& c : bench::fused_linear_cross_entropy_table().every_option("520x40x32001")) {
    if (c.flags.starts_with("everything")) check_on_device(c, DType::bf16, Variant::fused, Layout::packed, kGpu);
  }
}

// Chunks past the last token that counts are skipped by the device: in a graph of the op's own, and in the caller's.
TEST_F(GpuFusedLinearCrossEntropy, AnyShareOfTokensMayBeIgnored) {
  for (const char* shape : {"200x24x104:chunk=16", "200x160x404:chunk=16", "200x160x404:lean:chunk=16"}) {
    for (const char* ignored : {":ignored=0", ":ignored=0.5", ":ignored=0.99", ":ignored=1"}) {
      const bench::OpCase c = make(std::string(shape) + ignored);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        check_on_device(c, dtype, Variant::fused, Layout::packed, kGpu);
        check_full_call_on_device(c, dtype, kGpu);
        check_repeats_on_device(c, dtype, kGpu);
      }
    }
  }
}

// More tiles of dweight than multiprocessors, whole and cut off, in rows that lie anywhere.
TEST_F(GpuFusedLinearCrossEntropy, DweightOfManyTiles) {
  const bench::OpCase c = make("300x288x30011:chunk=100");
  for (const Layout layout : {Layout::packed, Layout::odd}) {
    check_on_device(c, DType::bf16, Variant::fused, layout, kGpu);
  }
  check_repeats_on_device(c, DType::bf16, kGpu);
}

TEST_F(GpuFusedLinearCrossEntropy, DweightIsAddedToWhatIsThere) {
  const bench::OpCase c = make("200x160x404:chunk=64");
  bench::OpCase added = c;
  added.backward = [&](const Context& ctx, const bench::Tensors& t) {
    c.backward(ctx, t);
    ops::fused_linear_cross_entropy_backward(ctx, {.x = t["x"],
                                                   .weight = t["weight"],
                                                   .target = t["target"],
                                                   .dloss = t["dloss"],
                                                   .chunk = {.tokens = 64},
                                                   .dweight = t["dweight"],
                                                   .accumulate_dweight = true});
  };
  CaseData once(c, DType::bf16, DType::bf16, Layout::packed, kGpu);
  CaseData twice(added, DType::bf16, DType::bf16, Layout::packed, kGpu);
  once.run(gpu());
  twice.run(gpu());
  std::vector<double> doubled = once.values("dweight");
  for (double& value : doubled) value *= 2;
  EXPECT_LE(relative_error(twice.values("dweight"), doubled), epsilon(DType::bf16) / 2);
}

// Scratch that the system takes back at once, as DeviceArena's, was not given back before the chunks ran; and chunks
// run on the default stream as well as on another.
TEST_F(GpuFusedLinearCrossEntropy, ScratchOutlivesRecordedChunks) {
  for (const bench::OpCase& c : bench::fused_linear_cross_entropy_table().test_cases) {
    if (c.flags.find("chunks of") == std::string::npos) continue;
    SCOPED_TRACE(c.name());
    CaseData usual(c, DType::bf16, DType::bf16, Layout::packed, kGpu);
    CaseData other(c, DType::bf16, DType::bf16, Layout::packed, kGpu);
    usual.run(gpu());
    const DeviceStream stream(kGpu);
    Context ctx = gpu();
    ctx.stream = stream.get();
    other.run(ctx);
    EXPECT_EQ(usual.result_bits(), other.result_bits());
    check_on_device(c, DType::bf16, Variant::fused, Layout::packed, kGpu);
  }
}

// What was recorded is kept and queued again for the same memory: it must read the numbers that are there then. More
// calls than are kept come between.
TEST_F(GpuFusedLinearCrossEntropy, KeptChunksSeeNewNumbers) {
  const bench::OpCase c = make("200x24x104:chunk=16");
  CaseData again(c, DType::f32, DType::f32, Layout::packed, kGpu);
  CaseData fresh(c, DType::f32, DType::f32, Layout::packed, kGpu);
  const auto ignore_some = [](CaseData& data) {
    for (int64_t token = 0; token < 200; ++token) {
      if (token % 3 != 0) data.set_value("target", token, -100);
    }
  };
  for (int round = 0; round < 2; ++round) again.run(gpu());
  const auto before = again.result_bits();
  ignore_some(again);
  again.run(gpu());
  ignore_some(fresh);
  fresh.run(gpu());
  EXPECT_NE(again.result_bits(), before);
  EXPECT_EQ(again.result_bits(), fresh.result_bits());
  for (int tokens = 40; tokens < 70; ++tokens) {
    CaseData other(make(std::to_string(tokens) + "x24x104:chunk=16"), DType::f32, DType::f32, Layout::packed, kGpu);
    other.run(gpu());
  }
  again.run(gpu());
  EXPECT_EQ(again.result_bits(), fresh.result_bits());
}

// In 16 bits logits are rounded before the largest is searched: what is found is as large as the largest, up to that.
TEST_F(GpuFusedLinearCrossEntropy, PredictsALargestLogit) {
  for (const bench::OpCase& c : bench::fused_linear_cross_entropy_table().test_cases) {
    if (c.flags != "reports") continue;
    CaseData data(c, DType::bf16, DType::bf16, Layout::packed, kGpu);
    data.run(gpu());
    const auto x = data.values("x"), weight = data.values("weight"), target = data.values("target");
    const auto predicted = data.values("predicted");
    const int64_t hidden = data.tensors()["x"].sizes[1], vocab = data.tensors()["weight"].sizes[0];
    for (size_t i = 0; i < predicted.size(); ++i) {
      const auto logit = [&](int64_t j) {
        double sum = 0;
        for (int64_t h = 0; h < hidden; ++h) {
          sum +=
              x[i * static_cast<size_t>(hidden) + static_cast<size_t>(h)] * weight[static_cast<size_t>(j * hidden + h)];
        }
        return sum;
      };
      if (target[i] < 0) {
        EXPECT_EQ(predicted[i], -1) << "token " << i;
        continue;
      }
      double largest = -HUGE_VAL;
      for (int64_t j = 0; j < vocab; ++j) largest = std::max(largest, logit(j));
      EXPECT_GE(logit(static_cast<int64_t>(predicted[i])), largest - epsilon(DType::bf16) * std::abs(largest))
          << "token " << i;
    }
  }
}

TEST_F(GpuFusedLinearCrossEntropy, VocabulariesOfModels) {
  for (const char* shape : {"1x64x32000", "17x64x32000", "1x64x50257", "17x64x50257", "17x64x151936", "17x64x256000"}) {
    check_on_device(make(shape), DType::bf16, Variant::fused, Layout::packed, kGpu);
  }
}

}  // namespace
}  // namespace tigon::test
