// adamw on a GPU where everything is bf16 and rounded by chance: bit for bit what the CPU makes of it, in the kernel
// for whole vectors and in the one for the rest.
#include <gtest/gtest.h>

#include <array>
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

}  // namespace
}  // namespace tigon::test
