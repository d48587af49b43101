// The trainer on a GPU: the same losses as on the CPU, exactly the planned bytes, the same bits on every run and after
// a checkpoint, whatever is recomputed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "gpu/gpu_fixture.hpp"
#include "gpu/gpu_run.hpp"

namespace tigon::test {
namespace {

class GpuTrain : public GpuTest {};

TEST_F(GpuTrain, LearnsAsTheCpuDoes) {
  for (const char* precision : {"fp32", "bf16", "bf16-sr", "fp16"}) {
    TrainConfig train = gpu_run(precision);
    Trainer gpu(gpu_model(), train);
    gpu.initialize();
    train.device = {};
    Trainer cpu(gpu_model(), train);
    cpu.initialize();
    const std::vector<double> on_gpu = losses(gpu, 0, 8), on_cpu = losses(cpu, 0, 8);
    const double tolerance = std::string(precision) == "fp32" ? 1e-4 : 2e-2;
    for (size_t i = 0; i < on_cpu.size(); ++i) {
      EXPECT_NEAR(on_gpu[i], on_cpu[i], tolerance * on_cpu[i]) << precision << " step " << i + 1;
    }
  }
}

// With several micro-batches too, whose documents are handed on from the step's to the one at hand.
TEST_F(GpuTrain, DocumentsApartLearnAsOnTheCpu) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int64_t accumulate : {1, 2}) {
      TrainConfig train = gpu_run(precision);
      train.documents_apart = true;
      train.accumulate = accumulate;
      Trainer gpu(gpu_model(), train);
      gpu.initialize();
      EXPECT_EQ(gpu.used_bytes(), gpu.plan().total_bytes());
      train.device = {};
      Trainer cpu(gpu_model(), train);
      cpu.initialize();
      const std::vector<double> on_gpu = losses(gpu, 0, 6), on_cpu = losses(cpu, 0, 6);
      const double tolerance = std::string(precision) == "fp32" ? 1e-4 : 2e-2;
      for (size_t i = 0; i < on_cpu.size(); ++i) EXPECT_NEAR(on_gpu[i], on_cpu[i], tolerance * on_cpu[i]) << i;
    }
  }
}

TEST_F(GpuTrain, PlannedIsUsed) {
  for (const char* precision : {"fp32", "bf16-sr", "fp16"}) {
    for (const char* recompute : {"none", "selective", "block"}) {
      for (const int64_t accumulate : {1, 3}) {
        TrainConfig train = gpu_run(precision);
        train.memory.recompute = recompute_from_string(recompute);
        train.accumulate = accumulate;
        Trainer trainer(gpu_model(), train);
        trainer.initialize();
        (void)losses(trainer, 0, 3);
        EXPECT_EQ(trainer.used_bytes(), trainer.plan().total_bytes()) << precision << " " << recompute;
      }
    }
  }
}

TEST_F(GpuTrain, TheSameBitsOnEveryRunAndForEveryMask) {
  std::string first;
  for (const char* recompute : {"none", "none", "selective", "block", "attention", "norm1,qkv", "o_proj,norm2"}) {
    TrainConfig train = gpu_run("bf16-sr");
    train.memory.recompute = recompute_from_string(recompute);
    Trainer trainer(gpu_model(), train);
    trainer.initialize();
    (void)losses(trainer, 0, 4);
    const std::string state = state_of(trainer);
    if (first.empty()) first = state;
    EXPECT_TRUE(state == first) << recompute;
  }
}

// Rows as long as models have them, which several warps share.
TEST_F(GpuTrain, MasksGiveTheSameBitsAtModelSizes) {
  std::string first;
  for (const char* recompute : {"none", "selective", "block"}) {
    TrainConfig train = gpu_run("bf16-sr");
    train.seq = 256;
    train.memory.chunk.tokens = 256;
    train.memory.recompute = recompute_from_string(recompute);
    ModelConfig model = gpu_model();
    model.hidden = 2048;
    model.head_dim = 64;
    model.heads = 32;
    model.kv_heads = 8;
    model.intermediate = 1024;
    model.max_position = 256;
    Trainer trainer(model, train);
    trainer.initialize();
    (void)losses(trainer, 0, 2);
    const std::string state = state_of(trainer);
    if (first.empty()) first = state;
    EXPECT_TRUE(state == first) << recompute;
  }
}

TEST_F(GpuTrain, RecordedStepsAreTheSameSteps) {
  for (const char* precision : {"fp32", "bf16-sr", "fp16"}) {
    for (const int64_t accumulate : {1, 3}) {
      TrainConfig train = gpu_run(precision);
      train.accumulate = accumulate;
      Trainer recorded(gpu_model(), train);
      recorded.initialize();
      const std::vector<double> whole = losses(recorded, 0, 7);
      (void)setenv("TIGON_GRAPHS", "off", 1);
      Trainer queued(gpu_model(), train);
      queued.initialize();
      const std::vector<double> piecewise = losses(queued, 0, 7);
      (void)unsetenv("TIGON_GRAPHS");
      EXPECT_EQ(whole, piecewise) << precision;
      EXPECT_TRUE(state_of(recorded) == state_of(queued)) << precision;
    }
  }
}

// Measures what the whole GPU has in use, so no other process may be there.
class GpuAlone : public GpuTest {};

// Two recorded micro-batches serve for all of them. Recorded one by one, 512 of them take far more than this allows.
TEST_F(GpuAlone, RecordedMemoryDoesNotGrowWithTheMicroBatches) {
  const auto taken = [](int64_t accumulate) {
    TrainConfig train = gpu_run("bf16-sr");
    train.accumulate = accumulate;
    Trainer trainer(gpu_model(), train);
    trainer.initialize();
    const int64_t before = device_bytes_in_use(train.device);
    (void)losses(trainer, 0, 4);
    return device_bytes_in_use(train.device) - before;
  };
  (void)taken(2);  // what libraries take once
  const int64_t few = taken(2);
  EXPECT_LT(taken(512), few + (int64_t{16} << 20));
}

TEST_F(GpuTrain, ResumedIsTheRunThatNeverStopped) {
  for (const char* precision : {"fp32", "bf16-sr", "fp16"}) {
    const TrainConfig train = gpu_run(precision);
    const TemporaryFolder folder;
    Trainer whole(gpu_model(), train);
    whole.initialize();
    (void)losses(whole, 0, 3);
    whole.save_checkpoint(folder / "half", kSettings);
    const std::vector<double> expected = losses(whole, 3, 7);
    Trainer second(gpu_model(), train);
    second.restore_checkpoint(folder / "half", kSettings);
    EXPECT_EQ(losses(second, 3, 7), expected) << precision;
    EXPECT_TRUE(state_of(second) == state_of(whole)) << precision;
  }
}

TEST_F(GpuTrain, EarlyUpdatesAreTheSameUpdates) {
  TrainConfig train = gpu_run("bf16-sr");
  train.clip = 0;
  Trainer late(gpu_model(), train);
  train.memory.update_early = true;
  Trainer early(gpu_model(), train);
  late.initialize();
  early.initialize();
  EXPECT_EQ(losses(early, 0, 4), losses(late, 0, 4));
  EXPECT_TRUE(state_of(early) == state_of(late));
  EXPECT_EQ(early.used_bytes(), early.plan().total_bytes());
}

TEST_F(GpuTrain, UnfusedAndEvaluationRunToo) {
  TrainConfig train = gpu_run("bf16");
  train.fused = fused_from_string("none");
  train.evaluates = true;
  Trainer trainer(gpu_model(), train);
  trainer.initialize();
  const auto batch = small_batch(gpu_model(), train, 0);
  const double loss = trainer.evaluate(batch[0]) / static_cast<double>(batch[0].counted);
  EXPECT_EQ(losses(trainer, 0, 1)[0], loss);
}

// What a run reports beyond its plan cannot be negative.
TEST_F(GpuTrain, BytesInUseHoldThePlan) {
  const Trainer trainer(gpu_model(), gpu_run("bf16"));
  EXPECT_GE(device_bytes_in_use(kGpu), trainer.plan().total_bytes());
}

}  // namespace
}  // namespace tigon::test
