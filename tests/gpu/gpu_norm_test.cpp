// The norms on a GPU beyond the small cases of the tables: every way a row can be held, more rows than blocks, outputs
// that are inputs, parameters in f32.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu/gpu_fixture.hpp"
#include "ops/case_runner.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"

namespace tigon::test {
namespace {

class GpuNorm : public GpuTest {};

TEST_F(GpuNorm, LongRowsAndManyRowsAgreeWithReference) {
  for (const bench::OpTable& table : bench::all_tables()) {
    if (table.op != "rmsnorm" && table.op != "add_rmsnorm" && table.op != "layernorm") continue;
    // More rows than groups of threads on the whole GPU, rows that leave lanes idle, and rows that fit no fast kernel.
    for (const char* shape : {"9000x64", "2500x256", "540x896", "300x2056", "280x2304", "1x4096", "17x4096", "280x4096",
                              "140x5120", "140x8192", "135x12288", "135x16384", "3x32768", "3x65544"}) {
      bench::OpCase c = table.make(shape);
      c.arithmetic_tolerance = 32;
      check_on_device(c, DType::bf16, Variant::fused, Layout::packed, kGpu);
    }
    for (const char* shape : {"540x896", "140x8192", "135x16384"}) {
      bench::OpCase c = table.make(shape);
      c.arithmetic_tolerance = 32;
      check_on_device(c, DType::f32, Variant::fused, Layout::packed, kGpu);
      check_repeats_on_device(c, DType::bf16, kGpu);
    }
  }
}

// The same calls on the CPU and on the GPU; `tensors` are filled alike, and all are compared after the calls.
class Twins {
 public:
  Tensor cpu(size_t i) const { return cpu_[i]; }
  Tensor gpu(size_t i) const { return gpu_[i]; }

  size_t add(DType dtype, std::initializer_list<int64_t> sizes) {
    const Context gpu_ctx{.device = kGpu, .memory = &device_};
    cpu_.emplace_back(Context{.memory = &heap_}, "tensor", dtype, sizes, MemoryClass::other);
    gpu_.emplace_back(gpu_ctx, "tensor", dtype, sizes, MemoryClass::other);
    const Tensor& t = cpu_.back();
    const RandomStream random{.seed = 5, .tensor = static_cast<uint32_t>(cpu_.size())};
    for (int64_t e = 0; e < t.elements(); ++e) {
      const float value = random.normal(static_cast<uint64_t>(e));
      if (dtype == DType::bf16) t.as<bf16>()[e] = bf16(value);
      if (dtype == DType::f32) t.as<float>()[e] = value;
    }
    device_copy(gpu_ctx, gpu_.back().view.data, t.data, t.bytes());
    synchronize(gpu_ctx);
    return cpu_.size() - 1;
  }

  void compare() {
    for (size_t i = 0; i < cpu_.size(); ++i) {
      const Tensor& t = cpu_[i];
      std::vector<std::byte> bytes(static_cast<size_t>(t.bytes()));
      const Context ctx{.device = kGpu};
      device_copy(ctx, bytes.data(), gpu_[i].view.data, t.bytes());
      synchronize(ctx);
      const auto value = [&](const void* data, int64_t e) {
        return t.dtype == DType::bf16 ? static_cast<float>(static_cast<const bf16*>(data)[e])
                                      : static_cast<const float*>(data)[e];
      };
      const double relative = t.dtype == DType::bf16 ? 0x1p-6 : 1e-4;
      for (int64_t e = 0; e < t.elements(); ++e) {
        const double exact = value(t.data, e), got = value(bytes.data(), e);
        ASSERT_LE(std::abs(got - exact), relative * (1 + std::abs(exact))) << "tensor " << i << " element " << e;
      }
    }
  }

  HeapArena heap_;
  DeviceArena device_{kGpu};

 private:
  std::vector<OwnedTensor> cpu_, gpu_;
};

TEST_F(GpuNorm, OutputsMayBeInputsAndParametersF32) {
  // Without rounding inside: the last bit of rstd, which may differ, would decide it here and there.
  constexpr auto kCasting = ops::NormCasting::gemma;
  for (const int64_t hidden : {96, 100, 2048, 6144}) {
    SCOPED_TRACE(hidden);
    Twins twins;
    const size_t x = twins.add(DType::bf16, {700, hidden}), y = twins.add(DType::bf16, {700, hidden});
    const size_t residual = twins.add(DType::bf16, {700, hidden}), dy = twins.add(DType::bf16, {700, hidden});
    const size_t weight = twins.add(DType::f32, {hidden}), bias = twins.add(DType::f32, {hidden});
    const size_t dweight = twins.add(DType::f32, {hidden}), dbias = twins.add(DType::f32, {hidden});
    const size_t mean = twins.add(DType::f32, {700}), rstd = twins.add(DType::f32, {700});
    const auto run = [&](const Context& ctx, const auto& t) {
      ops::add_rmsnorm_forward(ctx, {.x = t(x),
                                     .residual = t(residual),
                                     .weight = t(weight),
                                     .residual_out = t(residual),
                                     .y = t(y),
                                     .rstd = t(rstd),
                                     .casting = kCasting});
      ops::add_rmsnorm_backward(ctx, {.dy = t(dy),
                                      .residual_out = t(residual),
                                      .weight = t(weight),
                                      .rstd = t(rstd),
                                      .dx = t(dy),
                                      .dweight = t(dweight),
                                      .casting = kCasting,
                                      .accumulate_dweight = true});
      ops::layernorm_forward(
          ctx, {.x = t(y), .weight = t(weight), .bias = t(bias), .y = t(y), .mean = t(mean), .rstd = t(rstd)});
      ops::layernorm_forward(ctx, {.x = t(x), .y = t(y), .mean = t(mean), .rstd = t(rstd)});
      ops::layernorm_backward(ctx, {.dy = t(residual),
                                    .x = t(x),
                                    .weight = t(weight),
                                    .mean = t(mean),
                                    .rstd = t(rstd),
                                    .dx = t(x),
                                    .dweight = t(dweight),
                                    .dbias = t(dbias),
                                    .accumulate_dweight = true});
    };
    run({.memory = &twins.heap_}, [&](size_t i) { return twins.cpu(i); });
    run({.device = kGpu, .memory = &twins.device_}, [&](size_t i) { return twins.gpu(i); });
    twins.compare();
  }
}

}  // namespace
}  // namespace tigon::test
