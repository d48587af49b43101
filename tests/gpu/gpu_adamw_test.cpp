// adamw on a GPU, bit for bit what the CPU makes of it: where everything is bf16 and rounded by chance, in the kernel
// for whole vectors and in the one for the rest; and over types and sizes of every kind, alone
// and in a list.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "gpu/gpu_fixture.hpp"
#include "ops/adamw_arrays.hpp"
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

// Arrays of every kind, and their twins on the GPU.
class Twins {
 public:
  explicit Twins(std::vector<AdamwArrays> arrays) : arrays_(std::move(arrays)) {
    for (AdamwArrays& a : arrays_) {
      memory_.emplace_back(kGpu, std::max<int64_t>(1, static_cast<int64_t>(a.bytes().size())));
      device_copy(ctx_, memory_.back().data(), a.bytes().data(), static_cast<int64_t>(a.bytes().size()));
    }
  }
  std::vector<ops::Adamw> updates(int64_t step) {
    std::vector<ops::Adamw> list;
    for (size_t i = 0; i < arrays_.size(); ++i)
      list.push_back(arrays_[i].update(step, static_cast<uint32_t>(i), memory_[i].data(), kGpu));
    return list;
  }
  const std::vector<AdamwArrays>& fetch() {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      std::vector<std::byte>& bytes = arrays_[i].bytes();
      device_copy(ctx_, bytes.data(), memory_[i].data(), static_cast<int64_t>(bytes.size()));
    }
    synchronize(ctx_);
    return arrays_;
  }

 private:
  Context ctx_{.device = kGpu};
  std::vector<AdamwArrays> arrays_;
  std::vector<DeviceMemory> memory_;
};

TEST_F(GpuAdamw, DoesWhatTheCpuDoesOneByOneAndTogether) {
  // Four times, so that there are several launches of a list.
  std::vector<AdamwArrays> cpu;
  for (int i = 0; i < 4; ++i) {
    for (AdamwArrays& a : adamw_arrays_of_every_kind()) cpu.push_back(std::move(a));
  }
  Twins alone(cpu), together(cpu);
  const Context gpu{.device = kGpu};
  for (int64_t step = 1; step <= 3; ++step) {
    for (const ops::Adamw& update : updates_of(cpu, step)) ops::adamw({}, update);
    for (const ops::Adamw& update : alone.updates(step)) ops::adamw(gpu, update);
    ops::adamw_list(gpu, {.updates = together.updates(step)});
    const std::vector<AdamwArrays>&on_gpu_alone = alone.fetch(), &on_gpu_together = together.fetch();
    for (size_t i = 0; i < cpu.size(); ++i) {
      EXPECT_TRUE(on_gpu_alone[i].bytes() == cpu[i].bytes()) << "alone, " << i << ", step " << step;
      EXPECT_TRUE(on_gpu_together[i].bytes() == cpu[i].bytes()) << "together, " << i << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace tigon::test
