// adamw on a GPU, bit for bit what the CPU makes of it: where everything is bf16 and rounded by chance, in the kernel
// for whole vectors and in the one for the rest; and over states in 8 bits.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "gpu/gpu_fixture.hpp"
#include "tigon/core/half.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/ops/adamw.hpp"

namespace tigon::test {
namespace {

class GpuAdamw : public GpuTest {};

enum { kParam, kGrad, kM, kV, kArrays };
using Arrays = std::array<std::vector<bf16>, kArrays>;

Arrays random_arrays(int64_t n) {
  Arrays arrays;
  const RandomStream random{.seed = 5};
  for (int64_t i = 0; i < n; ++i) {
    const auto e = static_cast<uint64_t>(4 * i);
    arrays[kParam].emplace_back(random.normal(e));
    arrays[kGrad].emplace_back(random.normal(e + 1));
    arrays[kM].emplace_back(0.1f * random.normal(e + 2));
    arrays[kV].emplace_back(0.01f * (1.0f + random.uniform(e + 3)));
  }
  return arrays;
}

ops::Adamw update_of(const std::array<Tensor, kArrays>& t, int64_t first_element) {
  return {.param = t[kParam],
          .grad = t[kGrad],
          .m = t[kM],
          .v = t[kV],
          .lr = 0.01,
          .weight_decay = 0.1,
          .step = 3,
          .rounding = ops::Rounding::stochastic,
          .seed = 77,
          .tensor_id = 9,
          .first_element = first_element};
}

struct Case {
  int64_t n, first_element, shift;  // shift: elements off the alignment
};

TEST_F(GpuAdamw, RoundsByChanceAsTheCpuDoes) {
  for (const Case& c : {Case{70000, 0, 0}, {4096, 8, 0}, {4095, 0, 0}, {4096, 3, 0}, {4096, 0, 1}}) {
    Arrays on_cpu = random_arrays(c.n), on_gpu = on_cpu;
    const int64_t bytes = c.n * size_of(DType::bf16), room = (bytes + 511) / 256 * 256;
    const DeviceMemory memory(kGpu, kArrays * room);
    const Context gpu{.device = kGpu};
    std::array<Tensor, kArrays> host, device;
    for (size_t i = 0; i < kArrays; ++i) {
      std::byte* place = memory.data() + static_cast<int64_t>(i) * room + c.shift * size_of(DType::bf16);
      host[i] = Tensor::contiguous(on_cpu[i].data(), DType::bf16, {c.n});
      device[i] = Tensor::contiguous(place, DType::bf16, {c.n}, kGpu);
      device_copy(gpu, place, on_gpu[i].data(), bytes);
    }
    ops::adamw({}, update_of(host, c.first_element));
    ops::adamw(gpu, update_of(device, c.first_element));
    for (size_t i = 0; i < kArrays; ++i) device_copy(gpu, on_gpu[i].data(), device[i].data, bytes);
    synchronize(gpu);
    for (size_t i = 0; i < kArrays; ++i) {
      int64_t different = 0;
      for (size_t e = 0; e < on_cpu[i].size(); ++e) different += on_cpu[i][e].bits != on_gpu[i][e].bits;
      EXPECT_EQ(different, 0) << "array " << i << " of " << c.n << " from " << c.first_element << ", off by "
                              << c.shift;
    }
  }
}

// What an update over states in 8 bits reads and writes, on the host and again on the GPU.
class Coded {
 public:
  enum { kParam, kGrad, kM, kV, kMScale, kVScale, kCopy, kCount };

  Coded(int64_t n, DType param, DType copy, int64_t shift, Device device) : device_(device) {
    const DType types[kCount] = {param, DType::bf16, DType::u8, DType::u8, DType::f32, DType::f32, copy};
    const int64_t blocks = (n + ops::kCodeBlock - 1) / ops::kCodeBlock;
    for (int i = 0; i < kCount; ++i) {
      const int64_t elements = i == kMScale || i == kVScale ? blocks : n,
                    bytes = (elements + shift) * size_of(types[i]);
      host_[i].resize(static_cast<size_t>(bytes));
      if (device.kind != DeviceKind::cpu) memory_.emplace_back(device, bytes);
      std::byte* place = device.kind == DeviceKind::cpu ? host_[i].data() : memory_.back().data();
      tensors_[i] = Tensor::contiguous(place + shift * size_of(types[i]), types[i], {elements}, device);
      on_host_[i] = tensors_[i];
      on_host_[i].data = host_[i].data() + shift * size_of(types[i]);
      on_host_[i].device = {};
    }
  }
  void fill(int64_t step) {
    const RandomStream random{.seed = 5, .step = static_cast<uint32_t>(step)};
    for (int64_t e = 0; e < on_host_[kGrad].elements(); ++e) {
      const auto index = static_cast<uint64_t>(e);
      const float spread = e % 7 == 0 ? 1e-4f : 1.0f;  // so that all decades of the tables are used
      on_host_[kGrad].as<bf16>()[e] = bf16(spread * random.normal(index));
      if (step > 1) continue;
      const float value = random.normal(index + (uint64_t{1} << 40));
      if (on_host_[kParam].dtype == DType::f32) on_host_[kParam].as<float>()[e] = value;
      if (on_host_[kParam].dtype == DType::bf16) on_host_[kParam].as<bf16>()[e] = bf16(value);
    }
    if (on_host_[kGrad].elements() > 500) on_host_[kGrad].as<bf16>()[300] = bf16(INFINITY);
    move(true);
  }
  void update(int64_t step, bool stochastic) {
    ops::adamw({.device = device_}, {.param = tensors_[kParam],
                                     .grad = tensors_[kGrad],
                                     .m = tensors_[kM],
                                     .v = tensors_[kV],
                                     .m_scale = tensors_[kMScale],
                                     .v_scale = tensors_[kVScale],
                                     .param_copy = stochastic ? Tensor{} : tensors_[kCopy],
                                     .lr = 0.01,
                                     .weight_decay = 0.1,
                                     .step = step,
                                     .rounding = stochastic ? ops::Rounding::stochastic : ops::Rounding::nearest,
                                     .seed = 77,
                                     .tensor_id = 9,
                                     .first_element = 512});
    move(false);
  }
  const std::vector<std::byte>& bytes(int i) const { return host_[i]; }

 private:
  void move(bool to_device) {
    if (device_.kind == DeviceKind::cpu) return;
    const Context ctx{.device = device_};
    for (size_t i = 0; i < kCount; ++i) {
      void *host = host_[i].data(), *device = memory_[i].data();
      device_copy(ctx, to_device ? device : host, to_device ? host : device, static_cast<int64_t>(host_[i].size()));
    }
    synchronize(ctx);
  }

  Device device_;
  std::array<std::vector<std::byte>, kCount> host_;
  std::vector<DeviceMemory> memory_;
  std::array<Tensor, kCount> tensors_, on_host_;
};

TEST_F(GpuAdamw, KeepsStatesInEightBitsAsTheCpuDoes) {
  for (const int64_t n : {1, 255, 4096, 70001, 1 << 20}) {
    for (const int64_t shift : {0, 1}) {
      for (const bool stochastic : {false, true}) {
        const DType param = stochastic ? DType::bf16 : DType::f32;
        Coded cpu(n, param, DType::f16, shift, {}), gpu(n, param, DType::f16, shift, kGpu);
        for (int64_t step = 1; step <= 3; ++step) {
          for (Coded* states : {&cpu, &gpu}) {
            states->fill(step);
            states->update(step, stochastic);
          }
          for (int i = 0; i < Coded::kCount; ++i) {
            EXPECT_TRUE(cpu.bytes(i) == gpu.bytes(i))
                << "array " << i << " of " << n << ", off by " << shift << ", step " << step;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tigon::test
