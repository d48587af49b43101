#include "tigon/train/run.hpp"

#include <gtest/gtest.h>

#include <cmath>

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

}  // namespace
}  // namespace tigon::test
