// Where bytes live, and in which order a step goes through its micro-batches, changes no bit of a run.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/expect_error.hpp"
#include "tigon/storage/files.hpp"
#include "train/room.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

struct Outcome {
  std::vector<double> losses, norms;
  std::string gradients, state;
  double evaluation = 0;
};

// A few steps, in which a loss scale would overflow and grow.
Outcome run(const ModelConfig& model, TrainConfig train, int64_t steps = 4) {
  train.evaluates = true;
  train.precision.loss_scale.window = 2;
  const TemporaryFolder folder;
  Trainer trainer(model, train);
  trainer.initialize();
  Outcome outcome;
  for (int64_t step = 0; step < steps; ++step) {
    if (step == 1 && !train.memory.update_early) trainer.save_next_gradients(folder / "gradients");
    trainer.submit(small_batch(model, train, step));
    const StepReport report = trainer.collect();
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.grad_norm);
  }
  outcome.evaluation = trainer.evaluate(small_batch(model, train, 9)[0]);
  trainer.save_checkpoint(folder / "state", {});
  for (const char* file : {"model.safetensors", "state.safetensors"})
    outcome.state += read_text_file(folder / "state" / file, 1 << 26);
  if (!train.memory.update_early) outcome.gradients = read_text_file(folder / "gradients", 1 << 26);
  EXPECT_EQ(trainer.used_bytes(), trainer.plan().total_bytes());
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(got.losses, expected.losses) << what;
  EXPECT_EQ(got.norms, expected.norms) << what;
  EXPECT_EQ(got.evaluation, expected.evaluation) << what;
  EXPECT_TRUE(got.gradients == expected.gradients) << what;
  EXPECT_TRUE(got.state == expected.state) << what;
}

const std::vector<std::string> kHomes = {"optimizer",
                                         "all",
                                         "all+checkpoints",
                                         "checkpoints=host",
                                         "all,states=nvme",
                                         "weights=nvme,gradients=nvme,states=nvme,checkpoints=nvme",
                                         "gradients=nvme,states=host,checkpoints=nvme"};

TEST(Residency, EveryHomeHasTheSameBits) {
  for (const std::string& precision : precision_names()) {
    for (const char* recompute : {"none", "selective", "block", "qkv,attention"}) {
      for (const ModelConfig& model : {small_model(), small_qwen3()}) {
        for (const int64_t accumulate : {1, 3}) {
          TrainConfig train = small_run();
          train.precision = precision_from_string(precision);
          train.memory.recompute = recompute_from_string(recompute);
          train.accumulate = accumulate;
          const Outcome resident = run(model, train);
          for (const std::string& homes : kHomes) {
            train.memory.homes = homes_from_string(homes);
            expect_same(run(model, train), resident,
                        precision + " " + recompute + " " + homes + " " + std::to_string(accumulate));
          }
        }
      }
    }
  }
}

TEST(Residency, ByLayersTheSumsAreTheSame) {
  for (const std::string& precision : precision_names()) {
    for (const char* recompute : {"none", "selective", "block"}) {
      for (const int64_t tile : {0, 5}) {
        TrainConfig train = small_run();
        train.precision = precision_from_string(precision);
        train.memory.recompute = recompute_from_string(recompute);
        train.memory.mlp_tile = tile;
        train.accumulate = 3;
        const Outcome by_batches = run(small_model(), train);
        train.memory.order = Order::layers;
        expect_same(run(small_model(), train), by_batches, precision + " " + recompute);
        for (const std::string& homes : kHomes) {
          train.memory.homes = homes_from_string(homes);
          expect_same(run(small_model(), train), by_batches, precision + " " + recompute + " " + homes);
        }
      }
    }
  }
}

// The head's gradient of all micro-batches is added up before the embedding's.
TEST(Residency, ByLayersATiedEmbeddingDiffersByRoundingAlone) {
  for (const std::string& precision : precision_names()) {
    TrainConfig train = small_run();
    train.precision = precision_from_string(precision);
    train.accumulate = 3;
    const Outcome by_batches = run(small_qwen3(), train, 1 + 1);
    train.memory.order = Order::layers;
    const Outcome by_layers = run(small_qwen3(), train, 1 + 1);
    EXPECT_EQ(by_layers.losses[0], by_batches.losses[0]);
    EXPECT_NEAR(by_layers.norms[0], by_batches.norms[0], 1e-2 * by_batches.norms[0]) << precision;
    for (const std::string& homes : kHomes) {
      train.memory.homes = homes_from_string(homes);
      expect_same(run(small_qwen3(), train, 1 + 1), by_layers, precision + " " + homes);
    }
  }
}

TEST(Residency, WithoutClippingPartsAreUpdatedDuringBackward) {
  for (const std::string& precision : precision_names()) {
    for (const Order order : {Order::batches, Order::layers}) {
      TrainConfig train = small_run();
      train.precision = precision_from_string(precision);
      train.clip = 0;
      train.accumulate = order == Order::layers ? 2 : 1;
      train.memory.order = order;
      const Outcome resident = run(small_model(), train);
      for (const std::string& homes : kHomes) {
        train.memory.homes = homes_from_string(homes);
        expect_same(run(small_model(), train), resident, precision + " " + homes);
      }
    }
  }
}

TEST(Residency, UnfusedAndTiledBlocksToo) {
  for (const int64_t accumulate : {1, 2}) {
    TrainConfig train = small_run();
    train.accumulate = accumulate;
    train.memory.order = Order::layers;
    train.memory.mlp_tile = 4;
    train.fused = fused_from_string("none");
    const Outcome resident = run(small_model(), train);
    for (const std::string& homes : kHomes) {
      train.memory.homes = homes_from_string(homes);
      expect_same(run(small_model(), train), resident, homes);
    }
  }
}

TEST(Residency, EarlyUpdatesAndOneLayerToo) {
  ModelConfig model = small_model();
  for (const int64_t layers : {1, 2}) {
    model.layers = layers;
    TrainConfig train = small_run();
    train.clip = 0;
    train.memory.recompute = recompute_from_string("block");
    train.memory.update_early = true;
    Outcome resident = run(model, train);
    train.memory.homes = homes_from_string("checkpoints=host");
    expect_same(run(model, train), resident, "checkpoints=host");
    // The host updates early by itself; there the norm is exact.
    train.memory.homes = homes_from_string("all+checkpoints");
    const Outcome away = run(model, train);
    EXPECT_EQ(away.losses, resident.losses);
    EXPECT_TRUE(away.state == resident.state);
  }
}

// Divided out with the clipping factor, so no update may come before it.
TEST(Residency, AFixedLossScaleIsDividedOut) {
  TrainConfig train = small_run();
  train.precision = precision_from_string("bf16");
  train.precision.loss_scale.initial = 1024;
  train.clip = 0;
  const Outcome resident = run(small_model(), train);
  train.memory.homes = homes_from_string("all");
  expect_same(run(small_model(), train), resident, "all");
  train.memory.homes = {};
  train.memory.update_early = true;
  expect_error([&] { Trainer trainer(small_model(), train); }, ErrorCode::invalid_argument, "loss scale");
}

TEST(Residency, ASteadyStepMovesTheSameBytesEvaluatedOrNot) {
  TrainConfig train = small_run();
  train.evaluates = true;
  train.memory.homes = homes_from_string("all");
  Trainer trainer(small_model(), train);
  trainer.initialize();
  const auto step = [&](int64_t index) {
    const Traffic before = trainer.traffic();
    trainer.submit(small_batch(small_model(), train, index));
    (void)trainer.collect();
    trainer.finish();
    EXPECT_GT(trainer.traffic().update_seconds, before.update_seconds);
    return std::pair(trainer.traffic().up_bytes - before.up_bytes, trainer.traffic().down_bytes - before.down_bytes);
  };
  const auto first = step(0);
  (void)trainer.evaluate(small_batch(small_model(), train, 5)[0]);
  EXPECT_EQ(step(1), first);
  // All weights come for forward, and the layers' again for backward; all gradients leave, and the clipping factor.
  const ParameterList parameters(small_model());
  int64_t layers = 0;
  for (size_t layer = 0; layer < parameters.blocks.size(); ++layer) {
    const Part& part = parameters.parts[static_cast<size_t>(parameters.block_part(static_cast<int64_t>(layer)))];
    for (int i = part.begin; i < part.end; ++i) layers += parameters.all[static_cast<size_t>(i)].elements();
  }
  EXPECT_EQ(first.first, 4 * (parameters.elements() + layers));
  EXPECT_EQ(first.second, 4 * parameters.elements() + 4);
}

// A run goes on with other homes and another order as if nothing had changed.
TEST(Residency, ARunIsResumedInOtherHomes) {
  TrainConfig train = small_run();
  train.precision = precision_from_string("bf16");
  train.accumulate = 2;
  const ModelConfig model = small_model();
  std::vector<TrainConfig> runs(kHomes.size() + 1, train);
  for (size_t i = 1; i < runs.size(); ++i) {
    runs[i].memory.homes = homes_from_string(kHomes[i - 1]);
    runs[i].memory.order = i % 2 == 0 ? Order::layers : Order::batches;
  }
  const auto step = [&](Trainer& trainer, int64_t index) {
    trainer.submit(small_batch(model, train, index));
    return trainer.collect().loss;
  };
  Trainer whole(model, train);
  whole.initialize();
  std::vector<double> expected;
  for (int64_t i = 0; i < std::ssize(runs); ++i) expected.push_back(step(whole, i));
  const TemporaryFolder folder;
  for (size_t i = 0; i < runs.size(); ++i) {
    Trainer trainer(model, runs[i]);
    if (i == 0) {
      trainer.initialize();
    } else {
      trainer.restore_checkpoint(folder / std::to_string(i - 1), {});
    }
    EXPECT_EQ(step(trainer, static_cast<int64_t>(i)), expected[i]) << to_string(runs[i].memory.homes);
    trainer.save_checkpoint(folder / std::to_string(i), {});
  }
}

TEST(Residency, WhatLeavesTheDeviceIsNotInItsPlan) {
  TrainConfig train = small_run();
  train.precision = precision_from_string("bf16");
  train.memory.recompute = recompute_from_string("block");
  const ModelConfig model = small_model();
  const ParameterList parameters(model);
  const MemoryPlan resident = plan_memory(model, parameters, train);
  EXPECT_EQ(resident.pinned_bytes(), 0);
  EXPECT_EQ(resident.host_bytes(), 0);
  const auto of = [](const Sequence& sequence, MemoryClass memory_class) {
    return sequence.ledger.peak_by_class()[static_cast<size_t>(memory_class)];
  };
  train.memory.homes = homes_from_string("all+checkpoints");
  const MemoryPlan plan = plan_memory(model, parameters, train);
  for (const MemoryClass gone : {MemoryClass::weights, MemoryClass::states, MemoryClass::gradients}) {
    EXPECT_EQ(of(plan.residents, gone), 0);
  }
  EXPECT_EQ(of(plan.host, MemoryClass::states), of(resident.residents, MemoryClass::states));
  EXPECT_EQ(of(plan.pinned, MemoryClass::weights), of(resident.residents, MemoryClass::weights));
  EXPECT_EQ(of(plan.pinned, MemoryClass::gradients), of(plan.pinned, MemoryClass::weights));
  EXPECT_GT(of(plan.pinned, MemoryClass::layer_inputs), 0);
  EXPECT_LT(plan.total_bytes(), resident.total_bytes());
}

// An error, and not the end of the process when the memory is used.
TEST(Residency, AHostWithTooLittleMemorySaysSo) {
  check_host_memory(1);
  expect_error([] { check_host_memory(int64_t{1} << 50); }, ErrorCode::out_of_memory, "to spare");
}

TEST(Residency, HomesAreReadAsTheyAreWritten) {
  for (const char* text : {"none", "optimizer", "all", "all+checkpoints", "states=nvme",
                           "weights=nvme,gradients=host,states=nvme,checkpoints=nvme"}) {
    EXPECT_EQ(to_string(homes_from_string(text)), text);
  }
  EXPECT_EQ(to_string(homes_from_string("all+checkpoints,states=nvme,checkpoints=device")),
            "weights=host,gradients=host,states=nvme");
  EXPECT_EQ(homes_from_string("all,states=host"), homes_from_string("all"));
  EXPECT_FALSE(homes_from_string("all+checkpoints").any_on_disk());
  EXPECT_TRUE(homes_from_string("all,checkpoints=nvme").any_on_disk());
}

TEST(Residency, MixturesThatDoNotExistAreRefused) {
  for (const char* homes : {"weights=host", "states=host", "gradients=host", "weights=host,states=host", "states=nvme",
                            "gradients=nvme", "weights=nvme,checkpoints=nvme"}) {
    TrainConfig train = small_run();
    train.memory.homes = homes_from_string(homes);
    expect_error([&] { Trainer trainer(small_model(), train); }, ErrorCode::unsupported, "--offload");
  }
  expect_error([] { (void)homes_from_string("everything"); }, ErrorCode::invalid_argument, "everything");
  expect_error([] { (void)homes_from_string("states=moon"); }, ErrorCode::invalid_argument, "moon");
  expect_error([] { (void)homes_from_string("states=host,all"); }, ErrorCode::invalid_argument, "'all'");
  TrainConfig train = small_run();
  train.memory.disk.piece = 1000;
  expect_error([&] { Trainer trainer(small_model(), train); }, ErrorCode::invalid_argument, "2048");
  expect_error([] { (void)order_from_string("tokens"); }, ErrorCode::invalid_argument, "tokens");
}

}  // namespace
}  // namespace tigon::test
