// On a GPU too, where bytes live changes no bit: copies beside kernels, updates by the host's cores and by the GPU,
// steps queued ahead.
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

// Panels of so many classes at a time, in a resident run as well.
ops::ChunkRule panels_of(const TrainConfig& train, int64_t classes) {
  const int64_t logits = train.tokens() * ops::logit_bytes(train.device, train.precision.weight);
  return {.tokens = train.tokens(), .budget_bytes = classes * logits, .lean = true};
}

TEST_F(GpuResidency, AVocabularyThatIsNeverWholeHasTheSameBits) {
  for (const char* precision : {"fp32", "bf16", "bf16-sr", "fp16"}) {
    for (const bool tied : {false, true}) {
      ModelConfig model = gpu_model();
      model.tied_embeddings = tied;
      model.vocab = 1001;
      for (const auto& [order, accumulate] : {std::pair{Order::batches, 1}, {Order::batches, 3}, {Order::layers, 3}}) {
        for (const double clip : {1.0, 0.0}) {
          TrainConfig train = gpu_run(precision);
          train.accumulate = accumulate;
          train.memory.order = order;
          train.clip = clip;
          train.memory.chunk = panels_of(train, 256);
          const Outcome resident = run(model, train);
          for (const char* homes : {"all", "all+checkpoints"}) {
            train.memory.homes = homes_from_string(homes);
            ASSERT_TRUE(train.streams_vocabulary());
            expect_same(run(model, train), resident, std::string(precision) + " " + homes);
          }
        }
      }
    }
  }
}

struct UpdateCase {
  const char* homes;
  Updater updater;
  int64_t piece;
};
// In pieces of which a matrix has many, and in those of a real run.
const UpdateCase kUpdates[] = {
    {"optimizer", Updater::cpu, 1 << 21},
    {"optimizer", Updater::gpu, 999},
    {"optimizer", Updater::both, 1024},
    {"all", Updater::cpu, 1000},
    {"all", Updater::gpu, 1 << 21},
    {"all", Updater::both, 4096},
    {"all+checkpoints", Updater::both, 1 << 21},
    {"states=host", Updater::gpu, 4096},
    {"gradients=host", Updater::gpu, 1000},
    {"weights=host", Updater::gpu, 4096},
    {"weights=host,states=host", Updater::gpu, 999},
    {"weights=host,gradients=host", Updater::gpu, 4096},
};
void set_case(TrainConfig& train, const UpdateCase& c) {
  train.memory.homes = homes_from_string(c.homes);
  train.memory.updater = c.updater;
  train.memory.update_piece = c.piece;
}
std::string name_of(const UpdateCase& c) { return std::string(c.homes) + " by " + std::string(to_string(c.updater)); }

TEST_F(GpuResidency, WhoeverUpdatesTheBitsAreTheSame) {
  for (const char* precision : {"fp32", "bf16", "bf16-sr", "fp16"}) {
    for (const double clip : {1.0, 0.01, 0.0}) {
      for (const Order order : {Order::batches, Order::layers}) {
        TrainConfig train = gpu_run(precision);
        train.clip = clip;
        train.accumulate = order == Order::layers ? 2 : 1;
        train.memory.order = order;
        const Outcome resident = run(gpu_model(), train);
        for (const UpdateCase& c : kUpdates) {
          set_case(train, c);
          expect_same(run(gpu_model(), train), resident, precision + (" " + name_of(c)));
        }
      }
    }
  }
}

TEST_F(GpuResidency, StatesInEightBitsToo) {
  for (const char* precision : {"fp32", "bf16", "bf16-sr", "fp16"}) {
    for (const double clip : {1.0, 0.0}) {
      TrainConfig train = gpu_run(precision);
      train.clip = clip;
      train.optimizer.kind = Optimizer::adamw8;
      train.optimizer.smallest_in_8_bits = 1;
      train.optimizer.embedding_in_8_bits = true;
      const Outcome resident = run(gpu_model(), train);
      for (UpdateCase c : kUpdates) {
        c.piece = c.piece == 999 ? 256 : c.piece == 1000 ? 1024 : c.piece;
        set_case(train, c);
        expect_same(run(gpu_model(), train), resident, precision + (" " + name_of(c)));
      }
      train.memory.updater = Updater::automatic;
      train.memory.update_piece = 4096;
      train.memory.disk.piece = kDiskUnit;
      for (const char* homes : kHomes) {
        train.memory.homes = homes_from_string(homes);
        expect_same(run(gpu_model(), train), resident, std::string(precision) + " " + homes);
      }
    }
  }
}

// One layer of a 1B model: an embedding of 125 pieces, and norms that take many pieces as well.
TEST_F(GpuResidency, ALargeModelToo) {
  ModelConfig model = gpu_model();
  model.vocab = 128256;
  model.hidden = 2048;
  model.intermediate = 8192;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 64;
  model.layers = 1;
  model.tied_embeddings = true;
  const auto outcome = [&](const TrainConfig& train) {
    const TemporaryFolder folder;
    Trainer trainer(model, train);
    trainer.initialize();
    Outcome outcome{.losses = losses(trainer, 0, 4), .state = {}};
    trainer.save_weights(folder / "weights");
    outcome.state = read_text_file(folder / "weights" / "model.safetensors", int64_t{1} << 31);
    EXPECT_EQ(trainer.used_bytes(), trainer.plan().total_bytes());
    const Traffic traffic = trainer.traffic();
    if (train.memory.updater == Updater::both) {
      EXPECT_GT(traffic.updated_by_host, 0);
      EXPECT_GT(traffic.updated_by_device, 0);
    }
    return outcome;
  };
  for (const char* precision : {"bf16", "bf16-sr"}) {
    for (const double clip : {1.0, 0.0}) {
      TrainConfig train = gpu_run(precision);
      train.threads = 0;
      train.clip = clip;
      const Outcome resident = outcome(train);
      for (const UpdateCase& c : {UpdateCase{"all", Updater::gpu, 1 << 21}, UpdateCase{"all", Updater::both, 1 << 21},
                                  UpdateCase{"optimizer", Updater::both, 1 << 21}}) {
        set_case(train, c);
        expect_same(outcome(train), resident, precision + (" " + name_of(c)));
      }
      // And its vocabulary in panels, 8 of them.
      train.memory.homes = {};
      train.memory.updater = Updater::automatic;
      train.memory.chunk = panels_of(train, 16384);
      const Outcome lean = outcome(train);
      train.memory.homes = homes_from_string("all");
      ASSERT_TRUE(train.streams_vocabulary());
      expect_same(outcome(train), lean, precision + std::string(" in panels"));
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

TEST_F(GpuResidency, WaitsAreAPartOfTheStep) {
  TrainConfig train = gpu_run("bf16");
  train.memory.homes = homes_from_string("all");
  Trainer trainer(gpu_model(), train);
  trainer.initialize();
  for (int64_t step = 0; step < 4; ++step) {
    trainer.submit(small_batch(gpu_model(), train, step));
    const StepReport report = trainer.collect();
    EXPECT_GT(report.waits.copies, 0);
    EXPECT_GE(report.waits.updates, 0);
    EXPECT_LE(report.waits.copies + report.waits.updates, 1.05 * report.seconds + 1e-4);  // events are rounded
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
