// Where bytes live, and in which order a step goes through its micro-batches, changes no bit of a run.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>

#include "ops/expect_error.hpp"
#include "tigon/storage/files.hpp"
#include "train/room.hpp"
#include "train/small_model.hpp"
#include "train/system_calls.hpp"

namespace tigon::test {
namespace {

struct Outcome {
  std::vector<double> losses, norms;
  std::string gradients, state;
  double evaluation = 0;
  std::vector<float> speech{};  // how well each token would follow a text
  int64_t skipped = 0;
};

// A few steps, in which a loss scale would overflow and grow.
Outcome run(const ModelConfig& model, TrainConfig train, int64_t steps = 4) {
  train.evaluates = true;
  train.speaks = train.streams_vocabulary() ? 0 : 6;  // a head in panels does not speak
  train.precision.loss_scale.window = 2;
  const TemporaryFolder folder(folder_in_memory());
  Trainer trainer(model, train);
  trainer.initialize();
  Outcome outcome;
  for (int64_t step = 0; step < steps; ++step) {
    if (step == 1 && !train.memory.update_early) trainer.save_next_gradients(folder / "gradients");
    trainer.submit(small_batch(model, train, step));
    const StepReport report = trainer.collect();
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.skipped ? -1 : report.grad_norm);  // else it may be NaN
  }
  outcome.skipped = trainer.skipped();
  outcome.evaluation = trainer.evaluate(small_batch(model, train, 9)[0]);
  if (train.speaks > 0) outcome.speech = trainer.next_token(std::array{3, 1, 4, 1});
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
  if (!got.speech.empty()) {
    EXPECT_EQ(got.speech, expected.speech) << what;
  }
  EXPECT_EQ(got.skipped, expected.skipped) << what;
  EXPECT_TRUE(got.gradients == expected.gradients) << what;
  EXPECT_TRUE(got.state == expected.state) << what;
}

// Each kind in each place, as far as somebody may update it there.
std::vector<std::string> every_home() {
  std::vector<std::string> list;
  const char* const places[] = {"device", "host", "nvme"};
  for (const char* weights : places) {
    for (const char* gradients : places) {
      for (const char* states : places) {
        for (const char* checkpoints : places) {
          const Homes homes = homes_from_string(std::string("weights=") + weights + ",gradients=" + gradients +
                                                ",states=" + states + ",checkpoints=" + checkpoints);
          const bool updated =
              homes.weights == Home::nvme || homes.gradients == Home::nvme || homes.states == Home::nvme;
          if (updated && (homes.gradients == Home::device || homes.states == Home::device)) continue;
          list.push_back(to_string(homes));
        }
      }
    }
  }
  return list;
}
const std::vector<std::string> kEveryHome = every_home();

std::string case_name(const std::string& precision, const char* recompute, const std::string& homes, Order order) {
  return precision + " " + recompute + " " + homes + " by " + std::string(to_string(order));
}

const std::vector<std::string> kHomes = {"optimizer",
                                         "all",
                                         "all+checkpoints",
                                         "checkpoints=host",
                                         "all,states=nvme",
                                         "weights=nvme,gradients=nvme,states=nvme,checkpoints=nvme",
                                         "gradients=nvme,states=host,checkpoints=nvme"};

// Every home × order × precision × recompute preset. The way differs from case to case: whose turn it is to update, the
// size of a tile, one micro-batch or three, clipped or not, documents apart or not; a tied model is in it by batches,
// where its sums are the same.
TEST(Residency, EveryHomeInEveryOrderHasTheSameBits) {
  struct Way {
    int64_t accumulate, tile;
    double clip;
    bool tied;
    bool apart = false;
  };
  // Of these, each case takes the next one, so that all meet all over the whole matrix.
  const Way ways[] = {
      {3, 0, 1, false}, {1, 5, 0, true, true}, {3, 5, 0, false, true}, {1, 0, 1, true}, {3, 0, 0.01, true}};
  size_t next = 0;
  for (const std::string& precision : precision_names()) {
    for (const char* recompute : {"none", "selective", "block", "qkv,attention"}) {
      std::vector<std::optional<Outcome>> resident(std::size(ways));
      for (const std::string& homes : kEveryHome) {
        for (const Order order : {Order::batches, Order::layers}) {
          size_t way = next++ % std::size(ways);
          if (order == Order::layers && ways[way].tied) way = 0;  // the next test's
          TrainConfig train = small_run();
          train.precision = precision_from_string(precision);
          train.memory.recompute = recompute_from_string(recompute);
          train.memory.mlp_tile = ways[way].tile;
          train.accumulate = ways[way].accumulate;
          train.clip = ways[way].clip;
          train.documents_apart = ways[way].apart;
          const ModelConfig model = ways[way].tied ? small_qwen3() : small_model();
          if (!resident[way]) resident[way] = run(model, train);
          train.memory.order = order;
          train.memory.homes = homes_from_string(homes);
          expect_same(run(model, train), *resident[way],
                      case_name(precision, recompute, homes, order) + " way " + std::to_string(way));
        }
      }
    }
  }
}

// A run whose matrices all have states in 8 bits, with blocks that end in the middle, and pieces of one or few blocks.
TrainConfig run_in_8_bits(const std::string& precision) {
  TrainConfig train = small_run();
  train.precision = precision_from_string(precision);
  train.optimizer.kind = Optimizer::adamw8;
  train.optimizer.smallest_in_8_bits = 1;
  train.memory.update_piece = ops::kCodeBlock;
  train.memory.disk.piece = kDiskUnit;
  return train;
}

TEST(Residency, StatesInEightBitsHaveTheSameBitsInEveryHome) {
  for (const std::string& precision : precision_names()) {
    for (const bool embedding : {false, true}) {
      for (const int64_t accumulate : {1, 3}) {
        TrainConfig train = run_in_8_bits(precision);
        train.optimizer.embedding_in_8_bits = embedding;
        train.accumulate = accumulate;
        ModelConfig model = small_qwen3();
        model.intermediate = 200;  // gate_up has three pieces on the disk as well
        const Outcome resident = run(model, train);
        for (const std::string& homes : kHomes) {
          train.memory.homes = homes_from_string(homes);
          expect_same(run(model, train), resident, precision + " " + homes);
        }
      }
    }
  }
}

TEST(Residency, StatesInEightBitsByLayersAndEarlyToo) {
  for (const char* precision : {"bf16", "bf16-sr"}) {
    TrainConfig train = run_in_8_bits(precision);
    train.accumulate = 3;
    const Outcome by_batches = run(small_model(), train);
    train.memory.order = Order::layers;
    expect_same(run(small_model(), train), by_batches, precision);
    for (const std::string& homes : kHomes) {
      train.memory.homes = homes_from_string(homes);
      expect_same(run(small_model(), train), by_batches, precision + (" " + homes));
    }
    train = run_in_8_bits(precision);
    train.clip = 0;
    const Outcome late = run(small_model(), train);
    train.memory.update_early = true;
    const Outcome early = run(small_model(), train);
    EXPECT_EQ(early.losses, late.losses) << precision;
    EXPECT_TRUE(early.state == late.state) << precision;
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

// Panels of so many classes at a time, in a resident run as well.
ops::ChunkRule panels_of(const TrainConfig& train, int64_t classes) {
  const int64_t logits = train.tokens() * ops::logit_bytes(train.device, train.precision.weight);
  return {.tokens = train.tokens(), .budget_bytes = classes * logits, .lean = true};
}

TEST(Residency, AVocabularyThatIsNeverWholeHasTheSameBits) {
  for (const std::string& precision : precision_names()) {
    for (const ModelConfig& model : {small_model(), small_qwen3()}) {
      for (const auto& [order, accumulate] : {std::pair{Order::batches, 1}, {Order::batches, 3}, {Order::layers, 3}}) {
        for (const double clip : {1.0, 0.0}) {
          TrainConfig train = small_run();
          train.precision = precision_from_string(precision);
          train.accumulate = accumulate;
          train.memory.order = order;
          train.clip = clip;
          for (const int64_t classes : {model.vocab, int64_t{7}}) {
            train.memory.homes = {};
            train.memory.chunk = panels_of(train, classes);
            const Outcome resident = run(model, train);
            for (const char* homes : {"all", "all+checkpoints", "weights=host,gradients=host"}) {
              train.memory.homes = homes_from_string(homes);
              ASSERT_TRUE(train.streams_vocabulary());
              expect_same(run(model, train), resident, precision + " " + homes + " " + std::to_string(classes));
            }
          }
        }
      }
    }
  }
}

// Many pieces of the norm, and rows that are few among many.
TEST(Residency, ALargeVocabularyThatIsNeverWholeHasTheSameBits) {
  for (ModelConfig model : {small_model(), small_qwen3()}) {
    model.vocab = 3 * (int64_t{1} << 21) / model.hidden + 4321;
    TrainConfig train = small_run();
    train.precision = precision_from_string("bf16-sr");
    train.memory.chunk = panels_of(train, 9999);
    const Outcome resident = run(model, train, 2);
    train.memory.homes = homes_from_string("all");
    expect_same(run(model, train, 2), resident, std::string(to_string(model.family)));
    Trainer trainer(model, train);
    for (const MemoryPlan::PeakRow& row : trainer.plan().alive_at_peak())
      EXPECT_LT(row.bytes, model.vocab * model.hidden * 2) << row.name << " is as large as the vocabulary";
  }
}

// So many tokens that the budget alone would make other panels of a resident head.
TEST(Residency, ManyTokensMeetTheSamePanels) {
  ModelConfig model = small_model();
  model.vocab = 2047;
  model.layers = 1;
  TrainConfig train = small_run();
  train.batch = 912;  // × 9 tokens × 1024 classes are more than 32 MiB of logits
  train.memory.chunk = {.tokens = train.tokens(), .lean = true};
  const Outcome resident = run(model, train, 2);
  train.memory.homes = homes_from_string("all");
  expect_same(run(model, train, 2), resident, "all");
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

// Steps that overflow, among them the first and some after good ones, change nothing, whatever is on its way.
TEST(Residency, SkippedStepsChangeNothing) {
  for (const ModelConfig& model : {small_model(), small_qwen3()}) {
    for (const int64_t accumulate : {1, 3}) {
      for (const bool lean : {false, true}) {
        TrainConfig train = small_run();
        train.precision = precision_from_string("fp16");
        train.precision.loss_scale.initial = 0x1p18;
        train.accumulate = accumulate;
        if (lean) train.memory.chunk = panels_of(train, 7);
        const Outcome resident = run(model, train, 12);
        EXPECT_GE(resident.skipped, 2);
        EXPECT_LT(resident.skipped, 10);
        for (const std::string& homes : lean ? std::vector<std::string>{"all", "all+checkpoints"} : kHomes) {
          for (const Updater updater : {Updater::automatic, Updater::gpu}) {
            train.memory.homes = homes_from_string(homes);
            if (updater == Updater::gpu && train.memory.homes.any_on_disk()) continue;
            train.memory.updater = updater;
            expect_same(run(model, train, 12), resident, homes + " " + std::to_string(accumulate));
          }
        }
      }
    }
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
void expect_resumed_in_other_homes(TrainConfig train) {
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

TEST(Residency, ARunIsResumedInOtherHomes) {
  TrainConfig train = small_run();
  train.precision = precision_from_string("bf16");
  expect_resumed_in_other_homes(train);
  expect_resumed_in_other_homes(run_in_8_bits("bf16"));
  expect_resumed_in_other_homes(run_in_8_bits("bf16-sr"));
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

// Whichever it is: an error, and nobody waits for what the thread would have done.
TEST(Residency, AThreadThatCannotBeHadIsAnError) {
  TrainConfig train = small_run();
  train.memory.homes = homes_from_string("all,checkpoints=nvme");
  train.memory.updater = Updater::both;
  train.memory.chunk.lean = true;
  int refused = 0;
  for (int64_t n = 1;; ++n) {
    refuse_thread(n);
    std::string said;
    try {
      Trainer trainer(small_model(), train);
      trainer.initialize();
      try {
        for (int64_t step = 0; step < 2; ++step) {
          trainer.submit(small_batch(small_model(), train, step));
          (void)trainer.collect();
        }
        trainer.finish();  // an update's is heard of there at the latest
      } catch (const Error& error) {
        said = error.what();
        try {
          trainer.finish();
        } catch (const Error&) {  // NOLINT: heard already
        }
        EXPECT_THROW((void)trainer.evaluate(small_batch(small_model(), train, 0)[0]), Error);
      }
    } catch (const Error& error) {
      said = error.what();
    }
    if (!thread_refused()) break;
    EXPECT_NE(said.find("cannot be started"), std::string::npos) << n << ": " << said;
    ++refused;
  }
  refuse_thread(0);
  EXPECT_GE(refused, 7);  // the disk's, three lanes, the vocabulary's, the host's and the device's update
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

TEST(Residency, WhatIsOnTheDiskIsUpdatedByTheHost) {
  for (const char* homes : {"states=nvme", "gradients=nvme", "weights=nvme,checkpoints=nvme"}) {
    TrainConfig train = small_run();
    train.memory.homes = homes_from_string(homes);
    expect_error([&] { Trainer trainer(small_model(), train); }, ErrorCode::unsupported, "--offload");
  }
  for (const Updater updater : {Updater::gpu, Updater::both}) {
    TrainConfig train = small_run();
    train.memory.homes = homes_from_string("all,states=nvme");
    train.memory.updater = updater;
    expect_error([&] { Trainer trainer(small_model(), train); }, ErrorCode::unsupported, "--update cpu");
  }
}

// By whom, in pieces so small that parameters have many, and so large that they have one.
struct UpdateCase {
  std::string homes;
  Updater updater;
  int64_t piece;
};
std::vector<UpdateCase> update_cases() {
  std::vector<UpdateCase> list;
  for (const Updater updater : {Updater::cpu, Updater::gpu, Updater::both}) {
    list.push_back({"optimizer", updater, 37});
    list.push_back({"all", updater, 100});
    list.push_back({"all+checkpoints", updater, 1 << 20});
  }
  for (const char* homes : {"states=host", "gradients=host", "weights=host", "weights=host,states=host",
                            "weights=host,gradients=host", "weights=host,checkpoints=host"})
    list.push_back({homes, Updater::gpu, 50});
  return list;
}
std::string name_of(const UpdateCase& c) {
  return c.homes + " by " + std::string(to_string(c.updater)) + " in " + std::to_string(c.piece);
}
void set_case(TrainConfig& train, const UpdateCase& c) {
  train.memory.homes = homes_from_string(c.homes);
  train.memory.updater = c.updater;
  train.memory.update_piece = c.piece;
}

TEST(Residency, WhoeverUpdatesTheBitsAreTheSame) {
  struct Way {
    double clip;
    int64_t accumulate;
    Order order;
  };
  for (const std::string& precision : precision_names()) {
    for (const Way& way : {Way{1, 1, Order::batches}, Way{0, 1, Order::batches}, Way{0.01, 2, Order::batches},
                           Way{1, 2, Order::layers}, Way{0, 2, Order::layers}}) {
      TrainConfig train = small_run();
      train.precision = precision_from_string(precision);
      train.clip = way.clip;
      train.accumulate = way.accumulate;
      train.memory.recompute = recompute_from_string(way.accumulate == 1 ? "none" : "block");
      train.memory.order = way.order;
      const Outcome resident = run(small_model(), train);
      for (const UpdateCase& c : update_cases()) {
        set_case(train, c);
        expect_same(run(small_model(), train), resident, precision + " " + name_of(c));
      }
    }
  }
}

TEST(Residency, StatesInEightBitsAreUpdatedByAnybody) {
  for (const std::string& precision : precision_names()) {
    TrainConfig train = run_in_8_bits(precision);
    const Outcome resident = run(small_model(), train);
    for (UpdateCase c : update_cases()) {
      c.piece = c.piece < 100 ? 256 : 1024;
      set_case(train, c);
      expect_same(run(small_model(), train), resident, precision + " " + name_of(c));
    }
  }
  TrainConfig train = run_in_8_bits("bf16");
  train.memory.update_piece = 100;
  expect_error([&] { check_train_config(train, small_model()); }, ErrorCode::invalid_argument, "multiple of 256");
}

TEST(Residency, ATiedEmbeddingIsUpdatedByAnybody) {
  for (const char* precision : {"bf16", "bf16-sr"}) {
    for (const double clip : {1.0, 0.0}) {
      TrainConfig train = small_run();
      train.precision = precision_from_string(precision);
      train.clip = clip;
      const Outcome resident = run(small_qwen3(), train);
      for (const UpdateCase& c : update_cases()) {
        set_case(train, c);
        expect_same(run(small_qwen3(), train), resident, precision + (" " + name_of(c)));
      }
    }
  }
}

// What each has updated, and what that has moved.
TEST(Residency, UpdatesAreCounted) {
  const int64_t parameters = ParameterList(small_model()).elements();
  const auto traffic = [&](const UpdateCase& c, int64_t steps) {
    TrainConfig train = small_run();
    train.precision = precision_from_string("bf16");
    set_case(train, c);
    Trainer trainer(small_model(), train);
    trainer.initialize();
    for (int64_t step = 0; step < steps; ++step) {
      trainer.submit(small_batch(small_model(), train, step));
      (void)trainer.collect();
    }
    trainer.finish();
    return trainer.traffic();
  };
  const Traffic host = traffic({"optimizer", Updater::cpu, 100}, 2),
                device = traffic({"optimizer", Updater::gpu, 100}, 2),
                both = traffic({"optimizer", Updater::both, 100}, 2);
  EXPECT_EQ(host.updated_by_host, 2 * parameters);
  EXPECT_EQ(host.updated_by_device, 0);
  EXPECT_GT(host.update_seconds, 0);
  EXPECT_EQ(device.updated_by_device, 2 * parameters);
  EXPECT_EQ(both.updated_by_host + both.updated_by_device, 2 * parameters);
  // Each gets its turn, sooner or later.
  int64_t steps = 4;
  for (Traffic t = both; t.updated_by_host == 0 || t.updated_by_device == 0; steps *= 2) {
    ASSERT_LE(steps, 1 << 10);
    t = traffic({"all", Updater::both, 40}, steps);
  }
  // Gradients leave; master, m, v and the gradient come, the first three go, and weights stay.
  EXPECT_EQ(device.up_bytes, 2 * 14 * parameters);
  EXPECT_EQ(device.down_bytes, 2 * 14 * parameters);
  EXPECT_EQ(host.up_bytes, 2 * 2 * parameters);
  EXPECT_EQ(host.down_bytes, 2 * (2 * parameters + 4));
}

TEST(Residency, SlotsOfTheDevicesUpdateArePlanned) {
  TrainConfig train = small_run();
  train.precision = precision_from_string("bf16");
  const ParameterList parameters(small_model());
  const auto plan = [&](const UpdateCase& c) {
    set_case(train, c);
    return plan_memory(small_model(), parameters, train);
  };
  const auto slots = [](const MemoryPlan& plan) {
    return plan.residents.ledger.peak_by_class()[static_cast<size_t>(MemoryClass::workspace)];
  };
  const MemoryPlan host = plan({"all", Updater::cpu, 256}), device = plan({"all", Updater::gpu, 256});
  EXPECT_EQ(slots(host), 0);
  EXPECT_EQ(slots(device), 3 * 256 * (4 + 4 + 4 + 2 + 2));
  // What copies reach is pinned.
  EXPECT_GT(host.host_bytes(), 0);
  EXPECT_EQ(device.host_bytes(), 0);
  EXPECT_GE(device.pinned_bytes(), host.host_bytes() + host.pinned_bytes() - 1024);
  // Weights that stay on the device need no second copy where the host does not update them.
  const auto weights = [](const MemoryPlan& plan) {
    return plan.pinned.ledger.peak_by_class()[static_cast<size_t>(MemoryClass::weights)];
  };
  EXPECT_EQ(weights(plan({"optimizer", Updater::gpu, 256})), 0);
  EXPECT_GT(weights(plan({"optimizer", Updater::both, 256})), 0);
}

TEST(Residency, WhoUpdatesIsSettledByTheHomes) {
  const auto settled = [](const char* homes, Device device) {
    return settled_updater(Updater::automatic, homes_from_string(homes), device);
  };
  const Device gpu{.kind = DeviceKind::cuda};
  EXPECT_EQ(settled("none", gpu), Updater::gpu);
  EXPECT_EQ(settled("optimizer", gpu), Updater::both);
  EXPECT_EQ(settled("all", gpu), Updater::both);
  EXPECT_EQ(settled("all", {}), Updater::cpu);
  EXPECT_EQ(settled("states=host", gpu), Updater::gpu);
  EXPECT_EQ(settled("weights=host", {}), Updater::gpu);
  for (const Updater updater : {Updater::automatic, Updater::cpu, Updater::gpu, Updater::both})
    EXPECT_EQ(updater_from_string(to_string(updater)), updater);
}

TEST(Residency, WhatMakesNoSenseIsRefused) {
  for (const char* homes : {"none", "weights=host", "states=host", "gradients=host", "weights=host,states=host"}) {
    for (const Updater updater : {Updater::cpu, Updater::both}) {
      TrainConfig train = small_run();
      train.memory.homes = homes_from_string(homes);
      train.memory.updater = updater;
      expect_error([&] { Trainer trainer(small_model(), train); }, ErrorCode::invalid_argument, "--update gpu");
    }
  }
  TrainConfig train = small_run();
  train.clip = 0;
  train.memory.homes = homes_from_string("weights=host");
  train.memory.update_early = true;
  expect_error([&] { Trainer trainer(small_model(), train); }, ErrorCode::invalid_argument, "gradients=host");
  train.memory.update_early = false;
  train.memory.update_piece = 0;
  expect_error([&] { Trainer trainer(small_model(), train); }, ErrorCode::invalid_argument, "piece");
  expect_error([] { (void)homes_from_string("everything"); }, ErrorCode::invalid_argument, "everything");
  expect_error([] { (void)homes_from_string("states=moon"); }, ErrorCode::invalid_argument, "moon");
  expect_error([] { (void)homes_from_string("states=host,all"); }, ErrorCode::invalid_argument, "'all'");
  train = small_run();
  train.memory.disk.piece = 1000;
  expect_error([&] { Trainer trainer(small_model(), train); }, ErrorCode::invalid_argument,
               std::to_string(kDiskUnit).c_str());
  expect_error([] { (void)order_from_string("tokens"); }, ErrorCode::invalid_argument, "tokens");
  expect_error([] { (void)updater_from_string("tpu"); }, ErrorCode::invalid_argument, "tpu");
}

}  // namespace
}  // namespace tigon::test
