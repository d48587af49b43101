// tigon study as a person meets it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/program.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSmall =
    "study --preset cpu --model llama-bytes-1m --batches 1,2 --seqs 16 --strategies unfused,offload --steps 2 "
    "--output ";

std::string field(const std::string& csv, const std::string& id, size_t column) {
  const size_t begin = csv.find("\n" + id + ",") + 1;
  std::string line = csv.substr(begin, csv.find('\n', begin) - begin);
  for (; column > 0; --column) line = line.substr(line.find(',') + 1);
  return line.substr(0, line.find(','));
}

class StudyCli : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_ / name; }
  Folder folder_;
};

TEST_F(StudyCli, TeachesAndRefuses) {
  expect(tigon("study --help"), 0, {"--preset", "cpu, single-gpu, offload, ablation", "--prove", "Examples:"});
  expect(tigon("study"), 2, {"which study", "--preset cpu"});
  expect(tigon("study --preset nothing"), 2, {"no such preset", "one of cpu"});
  expect(tigon("study --show cpu"), 0, {"[[strategy]]", "model = \"llama-25m\""});
  expect(tigon("study --preset cpu --strategies fused,best --output " + at("s")), 2, {"no such strategy", "'best'"});
  expect(tigon("study --preset cpu --flags '--precison bf16' --output " + at("s")), 2,
         {"flags of the study", "--precison"});
  EXPECT_FALSE(fs::exists(at("s")));
}

TEST_F(StudyCli, PlansEveryPresetWithoutRunningIt) {
  for (const char* preset : {"cpu", "single-gpu", "offload", "ablation"}) {
    expect(tigon(std::string("study --dry-run --preset ") + preset), 0, {"of the device"});
  }
}

TEST_F(StudyCli, ASweepOfNoneOfTheChosenStrategiesIsNotRun) {
  std::ofstream(at("two.toml")) << R"(model = "llama-bytes-1m"
[[strategy]]
name = "a"
[[strategy]]
name = "b"
[[sweep]]
batches = [1]
seqs = [16]
[[sweep]]
batches = [2]
seqs = [16]
strategies = ["b"]
)";
  const Outcome plans = tigon("study --dry-run --strategies a " + at("two.toml"));
  expect(plans, 0, {"a-b1-s16"});
  EXPECT_EQ(plans.text.find("a-b2-s16"), std::string::npos) << plans.text;
}

TEST_F(StudyCli, KernelsAreOfTheDeviceThatWasAskedFor) {
  const Outcome asked = tigon("study --preset kernels --device cuda:99 --output " + at("k"));
  EXPECT_NE(asked.code, 0) << asked.text;
  EXPECT_NE(asked.text.find("device cuda"), std::string::npos) << asked.text;
  EXPECT_FALSE(fs::exists(at("k/kernels.json")));
}

// The same words, given to tigon train alone, say the same.
TEST_F(StudyCli, PointsAreWhatTrainSays) {
  expect(tigon(kSmall + at("s")), 0, {"unfused", "offload", "tokens/s", "4 points: 4 done", "report.html"});
  EXPECT_TRUE(fs::exists(at("s/report.html")));
  const std::string csv = bytes_of(at("s/results.csv"));
  const std::string json = bytes_of(at("s/points/offload-b2-s16/point.json"));
  const std::string key = "\"command\": \"tigon ";
  const size_t begin = json.find(key) + key.size();
  const std::string words = json.substr(begin, json.find('"', begin) - begin);
  expect(tigon(words + " --log " + at("log")), 0, {"4 steps"});
  // The last measured step's loss, to the last digit.
  const std::string log = bytes_of(at("log"));
  EXPECT_NE(log.find("\"step\":3,\"loss\":" + field(csv, "offload-b2-s16", 20)), std::string::npos) << log << csv;
  EXPECT_NE(log.find("\"planned_bytes\":" + field(csv, "offload-b2-s16", 8)), std::string::npos);
  for (const char* file : {"memory.json", "times.json", "memory.pickle", "trace.pt.trace.json.gz", "log.jsonl"})
    EXPECT_TRUE(fs::exists(at("s/points/unfused-b1-s16") + "/" + file)) << file;
  expect(tigon(kSmall + at("s")), 0, {"4 of 4 points are in"});
}

TEST_F(StudyCli, WhatACapHasNoRoomForIsNotRunAndTheSmallestThatWorksIsNamed) {
  expect(tigon(std::string(kSmall) + at("s") + " --cap 1MiB"), 0,
         {"out of memory: its plan is", "0 done, 4 out of memory", "Nothing fits", "The smallest that works is --cap"});
}

TEST_F(StudyCli, ACapIsKept) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer takes memory of its own, and may wait for ever where the system refuses it";
#endif
  const Outcome proved = tigon(std::string(kSmall) + at("s") + " --cap 2MiB --prove");
  expect(proved, 0, {"out of memory: HostMemory", "4 out of memory"});
  // The cap that is named is one that works, to the byte.
  const size_t begin = proved.text.find("works is --cap ") + 15;
  const std::string smallest = proved.text.substr(begin, proved.text.find('.', begin) - begin);
  expect(tigon(std::string(kSmall) + at("s") + " --cap " + smallest), 0, {"1 done, 3 out of memory"});
  // And by train alone: scripts tell it from other errors by the exit code.
  expect(tigon("train --model llama-bytes-1m --batch 4 --seq 128 --steps 1 --no-gemm-ceiling --cap 10MiB"), 3,
         {"the system refused"});
  expect(tigon("train --model llama-bytes-1m --batch 1 --seq 16 --steps 1 --no-gemm-ceiling --cap 2GiB"), 0,
         {"1 steps"});
}

// Whether a process runs with this word on its command line.
bool anyone_runs(const std::string& word) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", none)) {
    if (bytes_of(entry.path() / "cmdline").find(word) != std::string::npos) return true;
  }
  return false;
}

pid_t in_the_background(const std::string& command) {
  const pid_t child = fork();
  if (child == 0) {
    (void)execl("/bin/bash", "bash", "-c", ("exec " + command).c_str(), nullptr);
    _exit(127);
  }
  return child;
}

template <class Condition>
bool becomes(const Condition& condition) {
  for (int i = 0; i < 1200 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(25));
  return condition();
}

// A point that trained on would be beside the points of the study that goes on, and write into their folders.
TEST_F(StudyCli, APointEndsWithItsStudy) {
  const pid_t study = in_the_background(
      std::string(TIGON_PROGRAM) + " study --preset cpu --model llama-bytes-1m --batches 1 --seqs 16 " +
      "--strategies unfused --steps 100000 --output " + at("s") + " > " + at("out") + " 2>&1");
  EXPECT_TRUE(becomes([&] { return !bytes_of(at("s/points/unfused-b1-s16/log.jsonl")).empty(); }));
  (void)kill(study, SIGKILL);
  (void)waitpid(study, nullptr, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_FALSE(anyone_runs(at("s/points")));
}

// Killed at any time, and stopped by Ctrl-C, it goes on with what it has.
TEST_F(StudyCli, AKilledStudyGoesOn) {
  const std::string command = std::string(TIGON_PROGRAM) + " " + kSmall + at("s") + " > " + at("out") + " 2>&1";
  for (const int signal : {SIGKILL, SIGINT, SIGTERM}) {
    const pid_t study = in_the_background(command);
    (void)becomes([&] { return fs::exists(at("s/points")); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    (void)kill(study, signal);
    int status = 0;
    (void)waitpid(study, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
      EXPECT_NE(bytes_of(at("out")).find("goes on from there"), std::string::npos);
    }
  }
  expect(tigon(kSmall + at("s")), 0, {"4 points: 4 done"});
}

}  // namespace
}  // namespace tigon::test
