// On a GPU too, where bytes live changes no bit: copies beside kernels, updates by the host's cores, steps queued
// ahead.
#include <gtest/gtest.h>

#include "gpu/gpu_run.hpp"

namespace tigon::test {
namespace {

class GpuResidency : public GpuTest {};

struct Outcome {
  std::vector<double> losses;
  std::string state;
};

Outcome run(const ModelConfig& model, const TrainConfig& train) {
  Trainer trainer(model, train);
  trainer.initialize();
  Outcome outcome{.losses = losses(trainer, 0, 5), .state = state_of(trainer)};
  EXPECT_EQ(trainer.used_bytes(), trainer.plan().total_bytes());
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(got.losses, expected.losses) << what;
  EXPECT_TRUE(got.state == expected.state) << what;
}

const char* const kHomes[] = {"optimizer",
                              "all",
                              "all+checkpoints",
                              "checkpoints=host",
                              "all,states=nvme",
                              "weights=nvme,gradients=nvme,states=nvme,checkpoints=nvme",
                              "gradients=nvme,states=host,checkpoints=nvme"};

TEST_F(GpuResidency, EveryHomeHasTheSameBits) {
  for (const char* precision : {"fp32", "bf16", "bf16-sr", "fp16"}) {
    for (const char* recompute : {"none", "block"}) {
      for (const double clip : {1.0, 0.0}) {
        TrainConfig train = gpu_run(precision);
        train.memory.recompute = recompute_from_string(recompute);
        train.clip = clip;
        const Outcome resident = run(gpu_model(), train);
        for (const char* homes : kHomes) {
          train.memory.homes = homes_from_string(homes);
          expect_same(run(gpu_model(), train), resident, std::string(precision) + " " + recompute + " " + homes);
        }
      }
    }
  }
}

TEST_F(GpuResidency, ByLayersAndByBatchesTheSumsAreTheSame) {
  for (const char* precision : {"fp32", "bf16", "bf16-sr", "fp16"}) {
    TrainConfig train = gpu_run(precision);
    train.memory.recompute = recompute_from_string("block");
    train.accumulate = 3;
    const Outcome by_batches = run(gpu_model(), train);
    for (const Order order : {Order::batches, Order::layers}) {
      train.memory.order = order;
      train.memory.homes = {};
      const std::string by = std::string(precision) + " by " + std::string(to_string(order)) + " ";
      expect_same(run(gpu_model(), train), by_batches, by);
      for (const char* homes : kHomes) {
        train.memory.homes = homes_from_string(homes);
        expect_same(run(gpu_model(), train), by_batches, by + homes);
      }
    }
  }
}

TEST_F(GpuResidency, ATiedEmbeddingHasTheSameBitsInEveryHome) {
  ModelConfig model = gpu_model();
  model.tied_embeddings = true;
  for (const Order order : {Order::batches, Order::layers}) {
    TrainConfig train = gpu_run("bf16");
    train.accumulate = 2;
    train.memory.order = order;
    const Outcome resident = run(model, train);
    for (const char* homes : kHomes) {
      train.memory.homes = homes_from_string(homes);
      expect_same(run(model, train), resident, homes);
    }
  }
}

// Many pieces of every tensor, past the page cache, through rings of pinned memory.
TEST_F(GpuResidency, PiecesOnTheirWayToTheDiskChangeNoBit) {
  ModelConfig model = gpu_model();
  model.vocab = 4096;
  model.intermediate = 1000;
  for (const char* precision : {"fp32", "bf16", "bf16-sr", "fp16"}) {
    for (const int64_t accumulate : {1, 3}) {
      TrainConfig train = gpu_run(precision);
      train.seq = 128;
      train.memory.recompute = recompute_from_string("block");
      train.accumulate = accumulate;
      const Outcome resident = run(model, train);
      train.memory.disk.file.direct = true;
      train.memory.disk.piece = kDiskUnit;
      for (const char* homes : kHomes) {
        train.memory.homes = homes_from_string(homes);
        expect_same(run(model, train), resident, std::string(precision) + " " + homes);
      }
    }
  }
}

TEST_F(GpuResidency, PlannedIsUsedInEveryPlace) {
  for (const char* homes : kHomes) {
    TrainConfig train = gpu_run("bf16");
    train.accumulate = 2;
    train.memory.homes = homes_from_string(homes);
    Trainer trainer(gpu_model(), train);
    trainer.initialize();
    (void)losses(trainer, 0, 3);
    EXPECT_EQ(trainer.used(), trainer.plan().bytes()) << homes;
  }
}

}  // namespace
}  // namespace tigon::test
