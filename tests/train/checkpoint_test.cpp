// Checkpoints that were cut, flipped, mixed up or written by somebody else: an error each, and the run is as it was.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "ops/expect_error.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/train/checkpoints.hpp"
#include "tigon/train/trainer.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;
const std::map<std::string, std::string> kSettings = {{"batch", "2"}, {"seed", "1"}};

ModelConfig tiny() {
  ModelConfig model = small_model();
  model.layers = 1;
  return model;
}

void overwrite(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

TEST(Checkpoint, EveryFlippedOrMissingPieceIsFound) {
  const TemporaryFolder folder;
  Trainer trainer(tiny(), small_run());
  trainer.initialize();
  trainer.save_checkpoint(folder / "good", kSettings);
  Trainer other(tiny(), small_run());
  other.initialize();
  const auto weights = [&] {
    other.save_weights(folder / "now");
    return read_text_file(folder / "now" / "model.safetensors", 1 << 26);
  };
  const std::string before = weights();
  const RandomStream random{.seed = 3};
  uint64_t draw = 0;
  for (const char* name : {"checkpoint.json", "model.safetensors", "state.safetensors", "config.json"}) {
    const std::string whole = read_text_file(folder / "good" / name, 1 << 26);
    for (int i = 0; i < 60; ++i) {
      std::string bad = whole;
      const size_t at = random.bits(draw++) % bad.size();
      if (i % 3 == 0) {
        bad.resize(at);
      } else {
        bad[at] = static_cast<char>(bad[at] ^ (1 << random.bits(draw++) % 8));
      }
      overwrite(folder / "good" / name, bad);
      EXPECT_THROW(other.restore_checkpoint(folder / "good", kSettings), Error) << name << " at " << at;
    }
    fs::remove(folder / "good" / name);
    EXPECT_THROW(other.restore_checkpoint(folder / "good", kSettings), Error) << name;
    overwrite(folder / "good" / name, whole);
  }
  EXPECT_EQ(weights(), before);
  other.restore_checkpoint(folder / "good", kSettings);
}

TEST(Checkpoint, OtherSettingsAreRefusedByName) {
  const TemporaryFolder folder;
  Trainer trainer(tiny(), small_run());
  trainer.initialize();
  trainer.save_checkpoint(folder / "one", kSettings);
  try {
    trainer.restore_checkpoint(folder / "one", {{"batch", "4"}, {"seed", "1"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("batch"), std::string::npos) << error.what();
  }
  // So is what only one of the two has.
  for (const char* name : {"batch", "documents"}) {
    std::map<std::string, std::string> settings = kSettings;
    if (settings.erase(name) == 0) settings[name] = "apart";
    expect_error([&] { trainer.restore_checkpoint(folder / "one", settings); }, ErrorCode::invalid_argument, name);
  }
  TrainConfig half = small_run();
  half.precision = precision_from_string("bf16");
  Trainer other(tiny(), half);
  EXPECT_THROW(other.restore_checkpoint(folder / "one", kSettings), Error);
  Trainer larger(small_model(), small_run());
  EXPECT_THROW(larger.restore_checkpoint(folder / "one", kSettings), Error);
}

TEST(Checkpoint, TheNewestWholeOneIsFound) {
  const TemporaryFolder folder;
  const fs::path runs = folder / "runs";
  Trainer trainer(tiny(), small_run());
  trainer.initialize();
  EXPECT_TRUE(newest_checkpoint(runs).empty());
  for (const int64_t step : {5, 20, 100}) trainer.save_checkpoint(checkpoint_path(runs, step), kSettings);
  fs::create_directories(runs / "step-00000200.unfinished");
  write_text_file(runs / "notes.unfinished", "mine");
  fs::create_directories(runs / "step-00000300");  // killed by hand: no manifest
  overwrite(checkpoint_path(runs, 100) / "state.safetensors", "short");
  std::vector<std::string> damaged;
  EXPECT_EQ(newest_checkpoint(runs, &damaged), checkpoint_path(runs, 20));
  EXPECT_EQ(damaged.size(), 2u);
  prune_checkpoints(runs, 2);
  EXPECT_EQ(list_checkpoints(runs).size(), 2u);
  EXPECT_FALSE(fs::exists(runs / "step-00000200.unfinished"));
  EXPECT_TRUE(fs::exists(runs / "notes.unfinished"));
  // Saving over an old one leaves a whole one.
  trainer.save_checkpoint(checkpoint_path(runs, 100), kSettings);
  EXPECT_EQ(newest_checkpoint(runs), checkpoint_path(runs, 100));
}

// A run that has passed over a damaged one saves earlier steps: those are the ones to keep.
TEST(Checkpoint, ADamagedOneDoesNotPushOutWhatIsWhole) {
  const TemporaryFolder folder;
  const fs::path runs = folder / "runs";
  Trainer trainer(tiny(), small_run());
  trainer.initialize();
  for (const int64_t step : {5, 20, 100}) trainer.save_checkpoint(checkpoint_path(runs, step), kSettings);
  overwrite(checkpoint_path(runs, 100) / "state.safetensors", "short");
  prune_checkpoints(runs, 1, 20);
  EXPECT_EQ(newest_checkpoint(runs), checkpoint_path(runs, 20));
  EXPECT_FALSE(fs::exists(checkpoint_path(runs, 5)));
  EXPECT_TRUE(fs::exists(checkpoint_path(runs, 100)));
}

TEST(Checkpoint, AFullOrForbiddenFolderIsAnError) {
  Trainer trainer(tiny(), small_run());
  trainer.initialize();
  EXPECT_THROW(trainer.save_checkpoint("/proc/nowhere/step-00000001", kSettings), Error);
  EXPECT_THROW(write_text_file("/dev/full/x", "text"), Error);
  EXPECT_THROW(trainer.save_checkpoint("/dev/null/step-00000001", kSettings), Error);
  EXPECT_THROW(trainer.save_checkpoint("", kSettings), Error);
}

TEST(Checkpoint, ASaveThatFailsLeavesNothingBehind) {
  const TemporaryFolder folder;
  Trainer trainer(tiny(), small_run());
  trainer.initialize();
  trainer.set_config_text(std::string(1 << 20, ' '));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1 << 19;  // the weights still fit
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(trainer.save_checkpoint(folder / "step-00000001", kSettings), Error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)std::signal(SIGXFSZ, old);
  EXPECT_FALSE(fs::exists(folder / "step-00000001.unfinished"));
  EXPECT_FALSE(fs::exists(folder / "step-00000001"));
}

TEST(Checkpoint, ReplacesCheckpointsAndNothingElse) {
  const TemporaryFolder folder;
  Trainer trainer(tiny(), small_run());
  trainer.set_run_text("steps = 7\n");
  trainer.initialize();
  write_text_file(folder / "file", "mine");
  make_folder(folder / "papers");
  write_text_file(folder / "papers" / "thesis", "mine");
  trainer.save_weights(folder / "model");
  for (const char* name : {"file", "papers", "model"}) {
    expect_error([&] { trainer.save_checkpoint(folder / name, kSettings); }, ErrorCode::invalid_argument,
                 "something else than a checkpoint");
  }
  EXPECT_EQ(read_text_file(folder / "file", 100) + read_text_file(folder / "papers" / "thesis", 100), "minemine");

  make_folder(folder / "step");
  trainer.save_checkpoint(folder / "step", kSettings);  // an empty folder
  overwrite(folder / "step" / "state.safetensors", "damaged");
  fs::remove(folder / "step" / "checkpoint.json");
  ASSERT_TRUE(fs::exists(folder / "step" / "run.toml"));
  trainer.save_checkpoint(folder / "step/", kSettings);
  EXPECT_NO_THROW(trainer.restore_checkpoint(folder / "step", kSettings));
}

}  // namespace
}  // namespace tigon::test
