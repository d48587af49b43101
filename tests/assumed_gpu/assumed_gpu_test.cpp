// Plans for a GPU on a machine without one: the CUDA kernels' own scratch, on the GPU that the backend assumes. Needs
// libtigon_cuda.so, and neither a GPU nor a driver.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/program.hpp"
#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"
#include "tigon/ops/rmsnorm.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

struct AssumedGpu : testing::Test {
  AssumedGpu() {
    train.device = assumed_gpu();
    train.batch = 8;
    train.seq = 1024;
    train.precision = precision_from_string("bf16-sr");
    train.memory.recompute = recompute_from_string("block");
  }
  // The largest block of this name in the step.
  static int64_t bytes(const MemoryPlan& plan, const std::string& name) {
    int64_t most = 0;
    for (const LedgerEntry& entry : plan.step.ledger.entries()) {
      if (entry.name == name) most = std::max(most, entry.bytes);
    }
    return most;
  }

  const ModelConfig model = builtin_model("llama-3.2-1b");
  const ParameterList parameters{model};
  TrainConfig train;
};

TEST_F(AssumedGpu, HasAName) { EXPECT_EQ(assumed_gpu_name(), "H200"); }

TEST_F(AssumedGpu, BooksWhatItsKernelsTake) {
  const MemoryPlan plan = plan_memory(model, parameters, train);
  EXPECT_EQ(bytes(plan, "norm_dweight"), 132 * model.hidden * 4);
  EXPECT_EQ(bytes(plan, "attention_statistics"), 2 * train.tokens() * model.heads * 4);
  EXPECT_EQ(bytes(plan, "gemm_workspace"), int64_t{32} << 20);
  // Logits in the storage type, of the chunk that the plan says.
  EXPECT_EQ(bytes(plan, "flce_logits"), loss_chunk(model, plan.train) * model.vocab * 2);
  EXPECT_EQ(plan.total_bytes(), plan_memory(model, parameters, train).total_bytes());
}

TEST_F(AssumedGpu, TheLossTakesWhatIsFreeAnyway) {
  const MemoryPlan plan = plan_memory(model, parameters, train);
  TrainConfig fixed = train;
  fixed.memory.chunk.tokens = loss_chunk(model, train);
  const int64_t least = plan_memory(model, parameters, fixed).total_bytes();
  EXPECT_GT(loss_chunk(model, plan.train), fixed.memory.chunk.tokens);
  EXPECT_LE(plan.total_bytes(), least + least / 50);
}

TEST_F(AssumedGpu, NothingRunsOnIt) {
  HeapArena heap;
  const Context ctx{.device = assumed_gpu(), .memory = &heap};
  std::vector<float> memory(8);
  Tensor x = Tensor::contiguous(memory.data(), DType::f32, {2, 4});
  x.device = assumed_gpu();
  expect_error([&] { ops::rmsnorm_forward(ctx, {.x = x, .y = x}); }, ErrorCode::unsupported, "only assumed");
  expect_error([&] { (void)DeviceMemory(assumed_gpu(), 16); }, ErrorCode::unsupported, "only assumed");
  TrainConfig run = small_run();
  run.device = assumed_gpu();
  expect_error([&] { Trainer(small_model(), run); }, ErrorCode::unsupported, "only assumed");
}

TEST_F(AssumedGpu, ThePlanSaysSo) {
  try {
    synchronize({.device = {DeviceKind::cuda, 0}});
    GTEST_SKIP() << "there is a GPU";
  } catch (const Error&) {
  }
  expect(tigon("plan --device cuda --model llama-3.2-1b --batch 8 --precision bf16-sr --recompute block"), 0,
         {"loss by 4096 tokens", "No GPU here: as on an H200", "cuDNN"});
  expect(tigon("train --device cuda --steps 1"), 1, {"no usable NVIDIA GPU"});
}

}  // namespace
}  // namespace tigon::test
