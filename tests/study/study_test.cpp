// The grid, the files and the loop of a study. Points run by a script here: what they measure is tested in
// study_cli_test.cpp by the program itself.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "json/json.hpp"
#include "study/words.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/study/study.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;

template <class Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_says(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

TEST(StudyWords, AreTakenApartAsByAShellAndPutTogetherAgain) {
  EXPECT_EQ(words_of("  --a 1\t--b='x y' \"\" \n", "here"), (std::vector<std::string>{"--a", "1", "--b=x y", ""}));
  EXPECT_TRUE(words_of("", "here").empty());
  expect_says(error_of([] { (void)words_of("--a 'b", "here"); }), {"here", "no partner"});
  const std::vector<std::string> odd = {"tigon", "", "a b", "it's", "$HOME", "x\ny", "--flag=1"};
  EXPECT_EQ(command_text({"tigon", "train", "--batch", "8"}), "tigon train --batch 8");
  // The shell is the judge.
  FILE* shell = popen(("printf '%s|' " + command_text(odd)).c_str(), "r");
  std::string said(1000, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), shell));
  (void)pclose(shell);
  EXPECT_EQ(said, "tigon||a b|it's|$HOME|x\ny|--flag=1|");
}

TEST(StudyToml, ReadsAStudy) {
  const Study s = study_from_toml(R"(
name = "mine"
title = "Two ways"
model = "llama-bytes-1m"
flags = "--precision bf16"
cap = "1.5GiB"
warmup = 3
steps = 7
kernels = "--ops rmsnorm"
batches = [1, 2]
seqs = [16]
[[strategy]]
name = "a"
flags = "--fused none"
[[strategy]]
name = "b"
title = "The other"
[[sweep]]
batches = [2]
seqs = [16, 32]
accumulate = 4
strategies = ["b"]
[[sweep]]
batches = [2]
seqs = [16, 32]
)",
                                  "file");
  EXPECT_EQ(s.cap_bytes, int64_t{3} << 29);
  EXPECT_EQ(s.warmup, 3);
  EXPECT_EQ(s.steps, 7);
  std::vector<std::string> ids;
  for (const StudyPoint& point : study_points(s)) ids.push_back(point.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"a-b1-s16", "b-b1-s16", "a-b2-s16", "b-b2-s16", "b-b2-s16-a4", "b-b2-s32-a4",
                                           "a-b2-s32", "b-b2-s32"}));
  EXPECT_EQ(command_text(point_words(s, study_points(s)[4])),
            "train --model llama-bytes-1m --precision bf16 --batch 2 --seq 16 --accumulate 4");
  EXPECT_EQ(s.strategies[0].title, "a");
}

TEST(StudyToml, RefusesSlipsWithTheirLine) {
  const auto error = [](const char* text) {
    return error_of([&] { (void)study_points(study_from_toml(text, "my.toml")); });
  };
  expect_says(error("name = \"x\"\nbatch = [1]"), {"my.toml, line 2", "'batch' is not known", "batches"});
  expect_says(error("name = "), {"my.toml, line 1", "not TOML"});
  expect_says(error("name = 1"), {"'name' is no text"});
  expect_says(error("name = '../elsewhere'"), {"my.toml, line 1", "no name for a folder"});
  expect_says(error("steps = 0"), {"'steps'", "from 1 to"});
  expect_says(error("batches = [1, -2]"), {"'batches'", "from 1 to"});
  expect_says(error("cap = \"much\""), {"line 1", "24GiB"});
  expect_says(error("strategy = 3"), {"[[strategy]]"});
  expect_says(error("[[strategy]]\nname='a'\nflag='x'"), {"line 3", "a strategy has no 'flag'"});
  expect_says(error("name='x'"), {"no strategies"});
  expect_says(error("[[strategy]]\nname='a'"), {"no batches"});
  expect_says(error("seqs=[1]\n[[strategy]]\nname='a'"), {"lacks batches"});
  expect_says(error("seqs=[1]\nbatches=[1]\n[[strategy]]\nname='../a'"), {"no name"});
  expect_says(error("seqs=[1]\nbatches=[1]\n[[strategy]]\nname='a'\n[[strategy]]\nname='a'"), {"two strategies"});
  expect_says(error("flags='--batch 4'\nseqs=[1]\nbatches=[1]\n[[strategy]]\nname='a'"),
              {"--batch", "flags", "batches"});
  expect_says(error("seqs=[1]\nbatches=[1]\n[[strategy]]\nname='a'\nflags='--cap=1GiB'"), {"--cap", "flags of a"});
  expect_says(error("[[strategy]]\nname='a'\n[[sweep]]\nbatches=[1]\nseqs=[1]\nstrategies=['b']"),
              {"b, which there is not"});
}

TEST(StudyPresets, MakeSense) {
  for (const std::string& name : study_preset_names()) {
    const Study study = study_from_toml(study_preset_text(name), name);
    EXPECT_EQ(study.name, name);
    EXPECT_FALSE(study.title.empty());
    EXPECT_EQ(study_points(study).empty(), name == "kernels");
  }
  expect_says(error_of([] { (void)study_preset_text("gpu"); }), {"one of cpu, single-gpu"});
}

TEST(Quantiles, AreThoseOfSortedValues) {
  const Quantiles q = quantiles({5, 1, 3, 2, 4, 6});
  EXPECT_DOUBLE_EQ(q.median, 3.5);
  EXPECT_DOUBLE_EQ(q.q20, 2);
  EXPECT_DOUBLE_EQ(q.q80, 5);
  EXPECT_DOUBLE_EQ(quantiles({7}).q80, 7);
}

// A study of three points by a script, which does by the point's batch what a training may do.
class StudyRun : public testing::Test {
 protected:
  StudyRun() {
    std::ofstream script(folder_ / "program");
    script << R"(#!/bin/bash
echo "$*" >> ")"
           << (folder_ / "runs").string() << R"("
if [ "$1" = bench ]; then
  if [ "$6" = broken ]; then echo "tigon: no such op"; exit 1; fi
  echo '[]' > "$4"; exit 0
fi
while [ $# -gt 0 ]; do
  case "$1" in
    --batch) batch=$2 ;; --log) log=$2 ;; --steps) steps=$2 ;;
  esac
  shift
done
case $batch in
  2) echo "tigon: no room at all"; exit 3 ;;
  3) kill -KILL $$ ;;
  4) echo "tigon: something broke"; echo "more"; exit 1 ;;
  5) sleep 30 & wait ;;
  6) echo '{"step":1,"loss":1,"tokens":8,"seconds":1,"tokens_per_second":8}' > "$log"; exit 0 ;;
  7) kill -SEGV $$ ;;
esac
for s in $(seq "$steps"); do
  echo '{"step":'$s',"loss":'$s',"tokens":8,"seconds":0.'$s',"tokens_per_second":'$s'0,"compute_share":0.7,"copies_share":0.2,"updates_share":0.1}'
done > "$log"
echo '{"end":true,"used_bytes":1000,"beyond_plan_bytes":24,"process_peak_bytes":5000}' >> "$log"
)";
    script.close();
    fs::permissions(folder_ / "program", fs::perms::owner_all);
    study_.name = study_.title = "test";
    study_.warmup = 1;
    study_.steps = 3;
    study_.strategies = {{.name = "s", .title = "S, with a comma", .flags = {}}};
    study_.sweeps = {{.batches = {1}, .seqs = {8}}};
    options_ = {.folder = folder_ / "out", .command = "tigon study", .program = folder_ / "program"};
    options_.plan = [](const std::vector<std::string>& words) {
      PlannedPoint planned{.model = small_model(), .flops = 1};
      TrainConfig train = small_run();
      for (size_t w = 0; w + 1 < words.size(); ++w) {
        if (words[w] == "--batch") train.batch = std::stoll(words[w + 1]);
      }
      planned.plan = plan_memory(planned.model, ParameterList(planned.model), train);
      return planned;
    };
  }
  StudyOutcome run() { return run_study(study_, options_, *this, stop_); }
  // How often the script ran.
  int64_t runs() const {
    std::ifstream file(folder_ / "runs");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }
  Json point(const std::string& id) const {
    const fs::path file = options_.folder / "points" / id / "point.json";
    return Json::parse(read_text_file(file, 1 << 20), id);
  }
  std::string text(const std::string& file) const { return read_text_file(options_.folder / file, 1 << 20); }

  struct Watch : StudyObserver {
    std::vector<std::string> messages;
    std::vector<PointResult> points;
    void on_point(const PointResult& r) override { points.push_back(r); }
    void on_message(const std::string& text) override { messages.push_back(text); }
  } watch_;
  operator StudyObserver&() { return watch_; }

  TemporaryFolder folder_;
  Study study_;
  StudyOptions options_;
  std::atomic<bool> stop_ = false;
};

TEST_F(StudyRun, KeepsWhatWasMeasuredAndNothingElse) {
  const StudyOutcome outcome = run();
  EXPECT_EQ(outcome.done, 1);
  const PointResult& r = watch_.points.at(0);
  EXPECT_EQ(r.steps, 3);
  EXPECT_DOUBLE_EQ(r.tokens_per_second.median, 30);  // of steps 2, 3 and 4, without warm-up and the recorded one
  EXPECT_DOUBLE_EQ(r.seconds.q20, 0.24);
  EXPECT_EQ(r.loss, 4);
  EXPECT_EQ(r.peak_bytes(), r.planned.device + 24);
  EXPECT_EQ(r.copies_share, 0.2);
  expect_says(text("results.csv"), {"s-b1-s8,s,\"S, with a comma\",1,1,8,done,yes,", ",0.7,0.2,0.1,"});
  EXPECT_EQ(point("s-b1-s8").find("measured")->find("tokens_per_second")->find("median")->number(""), 30);
  EXPECT_EQ(runs(), 1);
}

TEST_F(StudyRun, RunningOutOfMemoryIsAResultAndFailingIsNone) {
  study_.sweeps[0].batches = {2, 3, 4, 6, 7, 1};
  const StudyOutcome outcome = run();
  EXPECT_EQ(outcome.out_of_memory, 2);
  EXPECT_EQ(outcome.failed, 3);
  EXPECT_EQ(outcome.done, 1);
  ASSERT_EQ(watch_.points.size(), 6u);
  EXPECT_EQ(watch_.points[0].why, "no room at all");
  EXPECT_TRUE(watch_.points[0].proved);
  expect_says(watch_.points[1].why, {"killed"});
  EXPECT_EQ(watch_.points[2].why, "something broke");
  expect_says(watch_.points[3].why, {"log", "whole run"});
  expect_says(watch_.points[4].why, {"signal 11"});
  // Again: what failed is tried again, the rest is kept.
  EXPECT_EQ(runs(), 6);
  EXPECT_EQ(run().kept, 3);
  EXPECT_EQ(runs(), 9);
}

TEST_F(StudyRun, WhatIsPlannedBeyondTheCapIsNotRunUnlessItShallBeProved) {
  study_.cap_bytes = 1000;
  StudyOutcome outcome = run();
  EXPECT_EQ(outcome.out_of_memory, 1);
  EXPECT_EQ(runs(), 0);
  EXPECT_FALSE(watch_.points.at(0).proved);
  EXPECT_EQ(outcome.smallest_plan, watch_.points.at(0).planned.device);
  expect_says(watch_.points.at(0).why, {"more than the cap"});
  options_.prove = true;
  outcome = run();
  EXPECT_EQ(outcome.kept, 0);
  EXPECT_EQ(runs(), 1);
  EXPECT_EQ(outcome.done, 1);
  expect_says(read_text_file(folder_ / "runs", 1 << 20), {"--cap 1000"});
}

TEST_F(StudyRun, GoesOnWhereItWasStopped) {
  study_.sweeps[0].batches = {1, 5, 8};
  std::thread stopper([&] {
    while (runs() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stop_ = true;
  });
  const StudyOutcome outcome = run();
  stopper.join();
  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.done, 1);
  EXPECT_FALSE(fs::exists(options_.folder / "points" / "s-b5-s8" / "point.json"));
  stop_ = false;
  study_.sweeps[0].batches = {1, 8};
  EXPECT_EQ(run().kept, 1);
  EXPECT_EQ(runs(), 3);
  // Another question is another point, whatever it is called.
  study_.steps = 2;
  watch_.messages.clear();
  EXPECT_EQ(run().kept, 0);
  ASSERT_EQ(watch_.messages.size(), 1u);
  expect_says(watch_.messages[0], {"2 in", "other flags", "measured again"});
}

TEST_F(StudyRun, SaysWhereWhatItKeepsCameFrom) {
  (void)run();
  (void)run();
  ASSERT_EQ(watch_.messages.size(), 1u);
  const fs::path file = options_.folder / "study.json";
  Json study = Json::parse(read_text_file(file, 1 << 20), "study.json");
  Json machine = *study.find("machine");
  machine.set("cpu", "a Cray-1");
  study.set("machine", machine);
  write_text_file(file, study.dump());
  watch_.messages.clear();
  EXPECT_EQ(run().kept, 1);
  ASSERT_EQ(watch_.messages.size(), 2u);
  expect_says(watch_.messages[1], {"another machine"});
}

TEST_F(StudyRun, DamagedResultsAreMeasuredAgain) {
  (void)run();
  const fs::path file = options_.folder / "points" / "s-b1-s8" / "point.json";
  const std::string whole = read_text_file(file, 1 << 20);
  for (const std::string& damaged :
       {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"), std::string("{}")}) {
    std::ofstream(file) << damaged;
    EXPECT_EQ(run().kept, 0);
  }
  EXPECT_EQ(run().kept, 1);
  EXPECT_EQ(runs(), 5);
}

TEST_F(StudyRun, LeavesOtherFoldersAlone) {
  fs::create_directory(options_.folder);
  std::ofstream(options_.folder / "thesis.tex") << "x";
  expect_says(error_of([&] { (void)run(); }), {"no study", "another folder"});
  for (const char* text : {"{\"format\": \"vega\"}", "{}", "[1]", "my notes"}) {
    std::ofstream(options_.folder / "study.json") << text;
    expect_says(error_of([&] { (void)run(); }), {"study.json"});
    EXPECT_EQ(read_text_file(options_.folder / "study.json", 100), text);
  }
  EXPECT_EQ(runs(), 0);
}

TEST_F(StudyRun, OneThatWasKilledAsItBeganGoesOn) {
  fs::create_directory(options_.folder);
  std::ofstream(options_.folder / "study.json.tmp") << "{";
  EXPECT_EQ(run().done, 1);
}

TEST_F(StudyRun, KernelsAreMeasuredOnceAndWhole) {
  study_.kernels = "--ops rmsnorm";
  (void)run();
  EXPECT_EQ(text("kernels.json"), "[]\n");
  (void)run();
  EXPECT_EQ(runs(), 2);
  expect_says(read_text_file(folder_ / "runs", 1 << 20), {"bench ops --json", "--ops rmsnorm"});
  study_.kernels = "--ops rope";  // other kernels are measured anew
  (void)run();
  EXPECT_EQ(runs(), 3);
  study_.kernels = "--ops broken";
  const StudyOutcome outcome = run();
  EXPECT_TRUE(outcome.kernels_failed);
  EXPECT_FALSE(fs::exists(options_.folder / "kernels.json"));
  expect_says(watch_.messages.back(), {"kernels are missing: no such op"});
}

TEST_F(StudyRun, AProgramThatIsNotThereIsAnError) {
  options_.program = folder_ / "none";
  expect_says(error_of([&] { (void)run(); }), {"cannot be started"});
}

}  // namespace
}  // namespace tigon::test
