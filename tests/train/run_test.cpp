#include "tigon/train/run.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>

#include "ops/expect_error.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "train/room.hpp"
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

// Changes token `at` of a token file of two bytes each, in place.
void put_token(const std::filesystem::path& path, int64_t at, uint16_t token) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(32 + 2 * at);
  const char bytes[2] = {static_cast<char>(token), static_cast<char>(token >> 8)};
  file.write(bytes, 2);
}

std::filesystem::path small_data(const TemporaryFolder& folder) {
  std::vector<int32_t> tokens(1000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 61);
  write_token_file(folder / "data", tokens, 61);
  return folder / "data";
}

// In the middle of an epoch of packed documents. What was learnt apart does not go on joined.
TEST(RunTraining, DocumentsApartGoOnBitwise) {
  const TemporaryFolder folder;
  TokenFileWriter writer(folder / "data", 61);
  for (int32_t i = 0; i < 1000; ++i) writer.add(std::array{i * i % 61}, {i % 7 != 3}, i % 5 == 0);
  writer.finish();
  TrainConfig train = small_run();
  train.documents_apart = true;
  const auto go = [&](const RunOptions& options, int64_t stop_after) {
    struct Stopping : RunObserver {
      std::atomic<bool> stop{false};
      int64_t after = 0;
      void on_step(const StepLine& line) override { stop = line.report.step == after; }
    } stopping;
    stopping.after = stop_after;
    return run_training(small_model(), train, options, stopping, stopping.stop);
  };
  const RunResult whole = go({.data = folder / "data"}, -1);
  RunOptions options{.data = folder / "data", .checkpoints = folder / "run"};
  EXPECT_TRUE(go(options, 7).stopped);
  options.resume = true;
  EXPECT_EQ(go(options, -1).last_loss, whole.last_loss);
  train.documents_apart = false;
  expect_error([&] { (void)go(options, -1); }, ErrorCode::invalid_argument, "documents (--documents, --document-end)");
}

// Calls `work` after a step.
struct AfterStep : RunObserver {
  AfterStep(int64_t step, std::function<void()> work) : step_(step), work_(std::move(work)) {}
  void on_step(const StepLine& line) override {
    ++steps;
    if (line.report.step == step_) work_();
  }
  void on_message(const std::string& text) override { messages += text + "\n"; }
  int steps = 0;
  std::string messages;

 private:
  int64_t step_;
  std::function<void()> work_;
};

TEST(RunTraining, ABadTokenIsFoundBeforeTheFirstStep) {
  const TemporaryFolder folder;
  const std::filesystem::path data = small_data(folder);
  put_token(data, 995, 61);
  AfterStep observer(1, [] {});
  expect_error([&] { (void)run({.data = data}, observer); }, ErrorCode::invalid_argument,
               "token 995 is outside the vocabulary");
  put_token(data, 995, 60);
  put_token(data, 980, 61);
  expect_error([&] { (void)run({.data = data, .eval_fraction = 0.1}, observer); }, ErrorCode::invalid_argument,
               "token 980 is outside the vocabulary");
  EXPECT_EQ(observer.steps, 0);
}

TEST(RunTraining, DataThatCannotBeReadCostsNothingThatWasLearnt) {
  const TemporaryFolder folder;
  const std::filesystem::path data = small_data(folder);
  RunObserver calm;
  const RunResult whole = run({.data = data, .shuffle = false}, calm);
  RunOptions options{.data = data, .shuffle = false, .checkpoints = folder / "run"};
  // Step 10 reads windows 18 and 19, of 9 tokens each.
  AfterStep spoils(7, [&] { put_token(data, 18 * 9 + 3, 61); });
  expect_error([&] { (void)run(options, spoils); }, ErrorCode::invalid_argument, "token 165 is outside");
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "step-00000009")) << spoils.messages;
  put_token(data, 18 * 9 + 3, 165 * 165 % 61);
  options.resume = true;
  const RunResult resumed = run(options, calm);
  EXPECT_EQ(resumed.trained, 11);
  EXPECT_EQ(resumed.last_loss, whole.last_loss);
}

TEST(RunTraining, ADiskThatIsFullForAWhileDoesNotEndTheRun) {
  const TemporaryFolder folder;
  const std::filesystem::path runs = folder / "run";
  // A file in the folder's place: nothing can be written there.
  struct FullForAWhile : AfterStep {
    explicit FullForAWhile(const std::filesystem::path& folder)
        : AfterStep(5,
                    [folder] {
                      std::filesystem::remove_all(folder);
                      std::ofstream(folder) << "full";
                    }),
          path(folder) {}
    void on_step(const StepLine& line) override {
      AfterStep::on_step(line);
      if (line.report.step == 11) std::filesystem::remove(path);
    }
    std::filesystem::path path;
  } observer(runs);
  EXPECT_EQ(run({.checkpoints = runs, .save_every = 5, .keep = 9}, observer).steps, 20);
  EXPECT_NE(observer.messages.find("not saved, the run goes on"), std::string::npos) << observer.messages;
  EXPECT_FALSE(std::filesystem::exists(runs / "step-00000010"));
  EXPECT_TRUE(std::filesystem::exists(runs / "step-00000015"));
  EXPECT_TRUE(std::filesystem::exists(runs / "step-00000020"));
}

TEST(RunTraining, AnOutputThatCannotBeWrittenCostsNoModel) {
  const TemporaryFolder folder;
  const std::filesystem::path in_the_way = folder / "out/model.safetensors.tmp";
  RunObserver observer;
  for (const bool checkpoints : {true, false}) {
    std::filesystem::create_directories(in_the_way);
    RunOptions options{.output = folder / "out"};
    if (checkpoints) options.checkpoints = folder / "run";
    std::string text;
    try {
      (void)run(options, observer);
      ADD_FAILURE();
    } catch (const Error& error) {
      text = error.what();
    }
    const std::string says = "It is in ", ends = ": take model.safetensors and config.json from there.";
    const size_t begin = text.find(says), end = text.find(ends);
    ASSERT_TRUE(begin != std::string::npos && end != std::string::npos) << text;
    const std::filesystem::path model = text.substr(begin + says.size(), end - begin - says.size());
    EXPECT_EQ(model == folder / "run" / "step-00000020", checkpoints) << text;
    std::filesystem::remove_all(in_the_way);
    (void)run({.output = folder / "out"}, observer);
    for (const char* name : {"model.safetensors", "config.json"}) {
      EXPECT_EQ(read_text_file(model / name, 1 << 26), read_text_file(folder / "out" / name, 1 << 26));
    }
    if (!checkpoints) std::filesystem::remove_all(model);
  }
}

TEST(RunTraining, ADiskWithTooLittleRoomIsFoundBeforeTheFirstStep) {
  const TemporaryFolder folder;
  AfterStep observer(1, [] {});
  TrainConfig train = small_run();
  train.steps = int64_t{1} << 39;
  const std::atomic<bool> stop{true};  // where there is enough it stops at once
  const auto start = [&](const RunOptions& options) {
    return run_training(small_model(), train, options, observer, stop);
  };
  const std::filesystem::path runs = folder / "run";
  expect_error([&] { (void)start({.checkpoints = runs, .save_every = 1, .keep = int64_t{1} << 38}); }, ErrorCode::io,
               "the disk has too little room for what this run writes there (274877906945 × a checkpoint of");
  (void)start({.checkpoints = runs, .save_every = int64_t{1} << 38, .keep = int64_t{1} << 38});
  (void)start({.checkpoints = runs, .save_every = 1, .keep = 1});
  EXPECT_EQ(observer.steps, 0);
}

// Two folders on one disk share its room.
TEST(Room, IsForAllOfADisk) {
  const TemporaryFolder folder;
  const auto bytes = static_cast<int64_t>(std::filesystem::space(folder / "").available / 5 * 3);
  const RoomNeed need{.folder = folder / "", .count = 1, .bytes = bytes, .what = "half"};
  EXPECT_NO_THROW(check_room({need}));
  expect_error([&] { check_room({need, need}); }, ErrorCode::io, "too little room");
  EXPECT_NO_THROW(check_room({{.folder = folder / "", .count = 0, .bytes = bytes * 4, .what = "none"}}));
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
  weights.write("\x00\x00\x00\x7f", 4);  // 2^127: finite in f32, and not in f16
  weights.close();
  TrainConfig train = small_run();
  train.precision = precision_from_string("fp16");
  train.precision.loss_scale.initial = 4;
  const std::atomic<bool> stop{false};
  RunObserver observer;
  expect_error([&] { (void)run_training(small_model(), train, {.model_folder = folder / "model"}, observer, stop); },
               ErrorCode::invalid_argument, "step 3: the gradient is not finite even with a loss scale of 1");
}

// Where something is away, each step says what it has waited for; else there is nothing to say.
TEST(RunTraining, AStepSaysWhatItHasWaitedFor) {
  struct Watch : RunObserver {
    void on_step(const StepLine& line) override { lines.push_back(line); }
    std::vector<StepLine> lines;
  };
  for (const char* homes : {"none", "all", "all,states=nvme", "all,checkpoints=nvme"}) {
    const TemporaryFolder folder;
    TrainConfig train = small_run();
    train.memory.homes = homes_from_string(homes);
    train.steps = 3;
    Watch watch;
    const std::atomic<bool> stop{false};
    (void)run_training(small_model(), train, {.log = folder / "log"}, watch, stop);
    const bool away = train.memory.homes.any_away(), disk = train.memory.homes.any_on_disk();
    double waited = 0;
    ASSERT_EQ(watch.lines.size(), 3U);
    for (const StepLine& line : watch.lines) {
      EXPECT_EQ(line.shows_waits, away);
      EXPECT_EQ(line.waits.copies > 0, away);
      EXPECT_EQ(line.shows_disk, disk);
      EXPECT_GE(line.compute_share(), 0);
      waited += line.waits.disk;
    }
    EXPECT_EQ(waited > 0, disk) << homes;
    EXPECT_EQ(read_text_file(folder / "log", 1 << 20).find("\"disk_share\":") != std::string::npos, disk);
    EXPECT_EQ(read_text_file(folder / "log", 1 << 20).find("\"updates_share\":") != std::string::npos, away);
  }
}

}  // namespace
}  // namespace tigon::test
