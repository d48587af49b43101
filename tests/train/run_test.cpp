#include "tigon/train/run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "ops/expect_error.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

RunResult run(const RunOptions& options, RunObserver& observer) {
  const std::atomic<bool> stop{false};
  return run_training(small_model(), small_run(), options, observer, stop);
}

TEST(RunTraining, OptionsThatMakeNoSenseAreRefused) {
  const auto refuse = [](auto change, const char* text) {
    RunOptions options;
    change(options);
    RunObserver observer;
    expect_error([&] { (void)run(options, observer); }, ErrorCode::invalid_argument, text);
  };
  refuse([](auto& o) { o.eval_fraction = std::nan(""); }, "fraction");
  refuse([](auto& o) { o.eval_fraction = 2; }, "fraction");
  refuse([](auto& o) { o.eval_fraction = -1; }, "fraction");
  refuse([](auto& o) { o.eval_every = -1; }, "steps between evaluations");
  refuse([](auto& o) { o.eval_every = 1; }, "what to evaluate on");
  refuse([](auto& o) { o.eval_batches = 0; }, "batches per evaluation");
  refuse([](auto& o) { o.save_every = -1; }, "steps between checkpoints");
  refuse([](auto& o) { o.save_every = 1; }, "needs --checkpoints");
  refuse([](auto& o) { o.resume = true; }, "needs --checkpoints");
  refuse([](auto& o) { o.keep = 0; }, "checkpoints to keep");
}

TEST(RunTraining, AnObserverMayThrowAndTheRunGoesOnLater) {
  struct Impatient : RunObserver {
    void on_step(const StepLine& line) override {
      if (line.report.step == 7) throw std::runtime_error("enough");
    }
  } impatient;
  const TemporaryFolder folder;
  RunOptions options{.checkpoints = folder / "run", .save_every = 5};
  EXPECT_THROW((void)run(options, impatient), std::runtime_error);
  RunObserver patient;
  options.resume = true;
  const RunResult resumed = run(options, patient);
  EXPECT_EQ(resumed.trained, 15);
  EXPECT_EQ(resumed.last_loss, run({}, patient).last_loss);
}

TEST(RunTraining, TheLogReplacesNothingButALog) {
  const TemporaryFolder folder;
  const std::filesystem::path data = folder / "text.txt", log = folder / "log.jsonl";
  std::ofstream(data) << std::string(4000, 'a');
  RunObserver observer;
  expect_error([&] { (void)run({.log = data}, observer); }, ErrorCode::invalid_argument,
               "the log would overwrite a file that is not a log");
  EXPECT_EQ(std::filesystem::file_size(data), 4000u);
  std::ofstream(log) << "";
  for (int twice = 0; twice < 2; ++twice) (void)run({.log = log}, observer);
  std::ifstream lines(log);
  std::string first;
  std::getline(lines, first);
  EXPECT_TRUE(first.starts_with('{')) << first;
}

// All steps would be skipped, and the run would look as if it had gone well.
TEST(RunTraining, GradientsThatNoLossScaleMakesFiniteEndTheRun) {
  const TemporaryFolder folder;
  Trainer trainer(small_model(), small_run());
  trainer.initialize();
  trainer.save_weights(folder / "model");
  std::fstream weights(folder / "model" / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-4, std::ios::end);
  weights.write("\xff\xff\xff\xff", 4);
  weights.close();
  TrainConfig train = small_run();
  train.precision = precision_from_string("fp16");
  train.precision.loss_scale.initial = 4;
  const std::atomic<bool> stop{false};
  RunObserver observer;
  expect_error([&] { (void)run_training(small_model(), train, {.model_folder = folder / "model"}, observer, stop); },
               ErrorCode::invalid_argument, "step 3: the gradient is not finite even with a loss scale of 1");
}

}  // namespace
}  // namespace tigon::test
