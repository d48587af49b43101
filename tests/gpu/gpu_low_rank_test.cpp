// Optimizers of low rank on a GPU: their ops against the CPU's, and that the place of bytes changes no bit of a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gpu/gpu_run.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/low_rank.hpp"

namespace tigon::test {
namespace {

class GpuLowRank : public GpuTest {};

// f32 values on both sides.
struct Both {
  std::vector<float> host;
  std::vector<int64_t> sizes;
  DeviceMemory memory;

  Both(std::vector<int64_t> shape, uint64_t seed, float deviation)
      : sizes(std::move(shape)), memory(kGpu, elements() * size_of(DType::f32)) {
    host.resize(static_cast<size_t>(elements()));
    for (size_t i = 0; i < host.size(); ++i) host[i] = deviation * RandomStream{.seed = seed}.normal(i);
  }
  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t size : sizes) n *= size;
    return n;
  }
  Tensor here() { return Tensor::contiguous(host.data(), DType::f32, sizes); }
  Tensor there() { return Tensor::contiguous(memory.data(), DType::f32, sizes, kGpu); }
  void send(const Context& gpu) { device_copy(gpu, memory.data(), host.data(), elements() * size_of(DType::f32)); }
  // What the GPU has made of it beside what the CPU has.
  void expect_near(const Context& gpu, double relative, const std::string& what) {
    std::vector<float> back(host.size());
    device_copy(gpu, back.data(), memory.data(), elements() * size_of(DType::f32));
    synchronize(gpu);
    double largest = 0;
    for (const float value : host) largest = std::max(largest, static_cast<double>(std::abs(value)));
    for (size_t i = 0; i < host.size(); ++i) ASSERT_NEAR(back[i], host[i], relative * largest) << what << " at " << i;
  }
};

TEST_F(GpuLowRank, OpsAreTheCpus) {
  HeapArena heap;
  DeviceArena arena(kGpu);
  const Context cpu{.memory = &heap}, gpu{.device = kGpu, .memory = &arena};
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {33, 70}, {1030, 257}, {257, 2050}}) {
    const std::string what = std::to_string(rows) + " x " + std::to_string(columns);
    Both drawn({rows, columns}, 0, 0);
    for (const int64_t first : {0, 3}) {
      const auto draw = [&](const Context& ctx, const Tensor& y) {
        ops::normal(ctx, {.y = y, .deviation = 2, .seed = 3, .step = 4, .tensor_id = 5, .first_element = first});
      };
      draw(cpu, drawn.here());
      draw(gpu, drawn.there());
      drawn.expect_near(gpu, 1e-6, what);
    }
    for (const bool by_columns : {false, true}) {
      const int64_t channels = by_columns ? columns : rows;
      Both projected({channels, 5}, 1, 0.1f), direction({channels, 5}, 2, 1), grad({rows, columns}, 3, 0.1f),
          last({1}, 4, 0), factors({channels}, 5, 1), param({rows, columns}, 6, 1);
      for (Both* b : {&projected, &direction, &grad, &last, &factors, &param}) b->send(gpu);
      for (const bool whole : {false, true}) {
        const auto both = [&](const Context& on, auto side) {
          ops::apollo_factors(on, {.projected = side(projected),
                                   .direction = side(direction),
                                   .grad = side(grad),
                                   .last = side(last),
                                   .factors = side(factors),
                                   .columns = by_columns,
                                   .whole = whole,
                                   .gain = 3});
          ops::scaled_update(on, {.param = side(param),
                                  .grad = side(grad),
                                  .factors = side(factors),
                                  .columns = by_columns,
                                  .lr = 0.1,
                                  .decay = 0.01});
        };
        both(cpu, [](Both& b) { return b.here(); });
        both(gpu, [](Both& b) { return b.there(); });
        factors.expect_near(gpu, 1e-5, what);
        last.expect_near(gpu, 1e-5, what);
        param.expect_near(gpu, 1e-5, what);
      }
    }
    if (rows > columns) continue;
    Both subspace({rows, columns}, 7, 1e-3f);
    subspace.send(gpu);
    ops::orthonormalize(cpu, {.rows = subspace.here()});
    ops::orthonormalize(gpu, {.rows = subspace.there()});
    subspace.expect_near(gpu, 1e-4, what);
  }
}

TEST_F(GpuLowRank, EveryHomeHasTheSameBits) {
  struct Case {
    const char* homes;
    Updater updater;
  };
  for (const Optimizer kind : {Optimizer::apollo, Optimizer::apollo_mini, Optimizer::galore}) {
    for (const char* precision : {"fp32", "bf16", "bf16-sr", "fp16"}) {
      if (kind == Optimizer::galore && std::string(precision) == "fp16") continue;  // refused
      TrainConfig train = gpu_run(precision);
      train.optimizer.kind = kind;
      train.optimizer.rank = kind == Optimizer::apollo_mini ? 0 : 16;
      train.optimizer.gap = 2;
      const auto run = [&] {
        Trainer trainer(gpu_model(), train);
        trainer.initialize();
        const std::vector<double> seen = losses(trainer, 0, 5);
        EXPECT_EQ(trainer.used_bytes(), trainer.plan().total_bytes());
        return std::pair{seen, state_of(trainer)};
      };
      const auto resident = run();
      EXPECT_LT(resident.first.back(), resident.first.front() + 0.1) << precision;
      for (const Case& c : {Case{"all", Updater::automatic},
                            {"optimizer", Updater::gpu},
                            {"states=host", Updater::gpu},
                            {"weights=host", Updater::gpu}}) {
        train.memory.homes = homes_from_string(c.homes);
        train.memory.updater = c.updater;
        const auto away = run();
        EXPECT_EQ(away.first, resident.first) << precision << " " << c.homes;
        EXPECT_TRUE(away.second == resident.second) << precision << " " << c.homes;
      }
    }
  }
}

}  // namespace
}  // namespace tigon::test
