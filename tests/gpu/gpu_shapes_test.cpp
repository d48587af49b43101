// Ops on a GPU at shapes of models, beyond the small cases of the tables: several blocks, several tokens per block,
// lists that end in the middle of one.
#include <gtest/gtest.h>

#include <cstdlib>

#include "gpu/gpu_fixture.hpp"
#include "ops/case_runner.hpp"
#include "ops/masked_case.hpp"
#include "tigon/core/error.hpp"
#include "tigon/ops/elementary.hpp"
#include "tigon/ops/linear.hpp"

namespace tigon::test {
namespace {

class GpuShapes : public GpuTest {
 protected:
  static void check(const char* op, std::initializer_list<const char*> shapes) {
    for (const bench::OpTable& table : bench::all_tables()) {
      if (table.op != op) continue;
      for (const char* shape : shapes) {
        bench::OpCase c = table.make(shape);
        c.arithmetic_tolerance = 32;
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
          check_on_device(c, dtype, Variant::fused, Layout::packed, kGpu);
          check_repeats_on_device(c, dtype, kGpu);
        }
      }
    }
  }
};

TEST_F(GpuShapes, RopeTurnsEveryHeadOfEveryToken) {
  check("rope", {"2x70x32x8x128", "1x17x64x16x128", "3x33x5x1x64", "1x9x3x3x2064", "1x300x1x1x32"});
}

TEST_F(GpuShapes, EmbeddingFindsEveryToken) {
  check("embedding", {"1000x4095x64", "1000x4096x64", "700x9000x96", "300x100x2048", "2000x3x40", "17x5000x896"});
}

TEST_F(GpuShapes, GatesCoverEveryElement) {
  check("swiglu", {"70x11008", "17x1376", "300x8"});
  check("geglu", {"70x11008", "17x1376", "300x8"});
}

TEST_F(GpuShapes, CrossEntropySeesTheWholeVocabulary) {
  check("cross_entropy",
        {"1x32000", "17x32000", "1x50257", "17x50257", "1x151936", "17x151936", "1x256000", "5x256000"});
  // One kernel, with more shared memory, less, and more again.
  check("cross_entropy", {"2x128256", "2x32000", "2x128256"});
  check("cross_entropy", {"420x32000:in_place", "9x128256:in_place"});
}

TEST_F(GpuShapes, MasksCountForNothing) {
  const auto check_masked = [](bench::OpCase c, DType dtype) {
    // softmax's dx is a difference of terms of this size, beside thousands of zeros; 16 bits are coarser than that.
    if (c.op == "softmax" && dtype == DType::f32) c.cancelling = 0.1;
    check_on_device(c, dtype, Variant::fused, Layout::packed, kGpu);
  };
  // Rows for a warp, for a block, for a team.
  for_masked_cases(bench::softmax_table(), {"7x64", "7x3000", "5x32000"}, check_masked);
  for_masked_cases(bench::cross_entropy_table(), {"7x64", "7x3000", "5x32000", "7x64:in_place", "5x32000:in_place"},
                   check_masked);
}

// With and without a bias; check() runs each case twice, so what was tuned is run again.
TEST_F(GpuShapes, TunedProductsAreProducts) {
  (void)setenv("TIGON_GEMM_TUNE", "1", 1);
  check("linear", {"1000x896x1280", "520x264x136"});
  for (const bench::OpCase& c : bench::linear_table().test_cases) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      check_on_device(c, dtype, Variant::fused, Layout::packed, kGpu);
    }
  }
  (void)unsetenv("TIGON_GEMM_TUNE");
}

// Large enough to be padded: odd outputs, odd inputs, both, and tokens that are odd as well.
TEST_F(GpuShapes, LargeProductsOfOddSizes) {
  for (const char* shape : {"768x768x1001", "768x1001x768", "775x839x833"}) {
    for (bench::OpCase& c : bench::linear_table().every_option(shape)) {
      check_on_device(c, DType::bf16, Variant::fused, Layout::packed, kGpu);
      check_repeats_on_device(c, DType::bf16, kGpu);
    }
  }
  check_on_device(bench::linear_table().make("775x839x833"), DType::f16, Variant::fused, Layout::odd, kGpu);
}

TEST_F(GpuShapes, LinearReadsRepeatedRows) {
  DeviceArena arena(kGpu);
  const Context ctx{.device = kGpu, .memory = &arena};
  const DeviceMemory memory(kGpu, 1024);
  const float x[] = {1, 2}, weight[] = {3, 4, 5, 6};
  float y[6] = {};
  const auto at = [&](int64_t offset, int64_t rows) {
    return Tensor::contiguous(memory.data() + offset, DType::f32, {rows, 2}, kGpu);
  };
  device_copy(ctx, memory.data(), x, sizeof(x));
  device_copy(ctx, memory.data() + 256, weight, sizeof(weight));
  ops::LinearForward args{.x = at(0, 3), .weight = at(256, 2), .y = at(512, 3)};
  args.x.strides[0] = 0;  // one row three times: a broadcast view
  ops::linear_forward(ctx, args);
  device_copy(ctx, y, memory.data() + 512, sizeof(y));
  synchronize(ctx);
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(y[2 * row], 11);
    EXPECT_EQ(y[2 * row + 1], 17);
  }
}

TEST_F(GpuShapes, SlopesEndAtOneAndZeroHoweverLargeTheInput) {
  DeviceArena arena(kGpu);
  const Context ctx{.device = kGpu, .memory = &arena};
  const DeviceMemory memory(kGpu, 1024);
  constexpr int64_t kCount = 8;
  const float up[kCount] = {1, 1, 1, 1, 1, 1, 1, 1},
              x[kCount] = {1e5f, -1e5f, 1e19f, -1e19f, 1e20f, -1e20f, 3e38f, -3e38f};
  const auto at = [&](int64_t offset) {
    return Tensor::contiguous(memory.data() + offset, DType::f32, {kCount}, kGpu);
  };
  device_copy(ctx, memory.data(), up, sizeof(up));
  device_copy(ctx, memory.data() + 256, x, sizeof(x));
  for (const ops::BinaryOp op :
       {ops::BinaryOp::silu_grad, ops::BinaryOp::gelu_tanh_grad, ops::BinaryOp::gelu_erf_grad}) {
    float slopes[kCount] = {};
    ops::binary(ctx, {.op = op, .a = at(0), .b = at(256), .y = at(512)});
    device_copy(ctx, slopes, memory.data() + 512, sizeof(slopes));
    synchronize(ctx);
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(slopes[i], i % 2 == 0 ? 1.0f : 0.0f) << x[i];
  }
}

}  // namespace
}  // namespace tigon::test
