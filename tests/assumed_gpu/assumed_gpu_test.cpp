// Plans for a GPU on a machine without one: the CUDA kernels' own scratch, on the GPU that the backend assumes. Needs
// libtigon_cuda.so, and neither a GPU nor a driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "cli/program.hpp"
#include "ops/expect_error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/attention.hpp"
#include "tigon/ops/device_memory.hpp"
#include "tigon/ops/fused_linear_cross_entropy.hpp"
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
    for (const LedgerEntry& entry : plan[Phase::step].ledger.entries()) {
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
  // Two statistics of each query; sums of 33 heads of keys, each with four of queries in eight tiles of 128, and whose
  // turn it is at each of them.
  EXPECT_EQ(bytes(plan, "attention_workspace"),
            2 * train.tokens() * model.heads * 4 + 33 * 4 * 8 * (128 * 64 * 4) + 34 * 128);
  EXPECT_EQ(bytes(plan, "gemm_workspace"), int64_t{32} << 20);
  // Logits in the storage type, of the chunk that the plan says.
  EXPECT_EQ(bytes(plan, "flce_logits"), loss_chunk(model, plan.train) * model.vocab * 2);
  EXPECT_EQ(plan.total_bytes(), plan_memory(model, parameters, train).total_bytes());
}

// A caller asks how much scratch it takes before it has the tensors.
TEST_F(AssumedGpu, ScratchDoesNotDependOnAddresses) {
  for (const int64_t seq : {100, 1000}) {
    const auto scratch = [&](uintptr_t address) {
      Ledger ledger;
      MeasureArena measure(ledger);
      const Context ctx{.device = assumed_gpu(), .memory = &measure};
      const auto tensor = [&](DType dtype, std::initializer_list<int64_t> sizes) {
        return Tensor::contiguous(reinterpret_cast<void*>(address), dtype, sizes, assumed_gpu());
      };
      const Tensor x = tensor(DType::bf16, {1, seq, 4, 64}), lse = tensor(DType::f32, {1, 4, seq});
      ops::attention_backward(ctx, {.dout = x, .q = x, .k = x, .v = x, .o = x, .lse = lse, .dq = x, .dk = x, .dv = x});
      return ledger.peak_bytes();
    };
    EXPECT_EQ(scratch(4096), scratch(0));
    EXPECT_EQ(scratch(4096 + 2), scratch(0));
  }
}

// What it takes beside its gradients, however many chunks add to a bf16 dweight.
TEST_F(AssumedGpu, TheLossStaysWithinItsBudget) {
  const auto mebibytes = [](int64_t tokens, int64_t hidden, ops::ChunkRule chunk, int64_t vocab = 128256) {
    Ledger ledger;
    MeasureArena measure(ledger);
    const Context ctx{.device = assumed_gpu(), .memory = &measure};
    const auto tensor = [&](DType dtype, std::initializer_list<int64_t> sizes) {
      return Tensor::contiguous(nullptr, dtype, sizes, assumed_gpu());
    };
    const Tensor x = tensor(DType::bf16, {tokens, hidden}), weight = tensor(DType::bf16, {vocab, hidden});
    ops::fused_linear_cross_entropy_forward(ctx, {.x = x,
                                                  .weight = weight,
                                                  .target = tensor(DType::i64, {tokens}),
                                                  .chunk = chunk,
                                                  .out = {.loss = tensor(DType::f32, {1})},
                                                  .dx = x,
                                                  .dweight = weight});
    return static_cast<double>(ledger.peak_bytes()) / (1 << 20);
  };
  EXPECT_LE(mebibytes(4096, 2048, {}), 264);
  EXPECT_LE(mebibytes(8192, 2048, {}), 264);
  EXPECT_LE(mebibytes(32768, 2048, {}), 528);
  EXPECT_LE(mebibytes(4096, 4096, {}), 528);
  EXPECT_LE(mebibytes(8192, 4096, {}), 528);
  EXPECT_LE(mebibytes(8192, 4096, {.lean = true}), 100);
  // A vocabulary that is no multiple of 8 takes a few rows more, not a second weight.
  EXPECT_LE(mebibytes(4096, 2048, {}, 128255), mebibytes(4096, 2048, {}) + 1);
  EXPECT_LE(mebibytes(8192, 4096, {.lean = true}, 128255), mebibytes(8192, 4096, {.lean = true}) + 1);
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
  expect(tigon("plan --device cuda --model llama-3.2-1b --batch 8 --seq 1024 --precision bf16-sr --recompute block"), 0,
         {"loss by 4096 tokens", "No GPU here: as on an H200", "cuDNN"});
  expect(tigon("train --device cuda --steps 1"), 1, {"no usable NVIDIA GPU"});
}

}  // namespace
}  // namespace tigon::test
