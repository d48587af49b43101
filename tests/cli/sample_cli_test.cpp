// tigon sample and tigon eval: a model speaks, and foretells a text.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "cli/program.hpp"

namespace tigon::test {
namespace {

// A model of bytes that a few steps have taught that nothing follows a letter but another.
const std::string& model() {
  static const Folder folder;
  static const std::string path = [] {
    std::ofstream(folder / "letters") << std::string(4096, 'e');
    expect(tigon("train --model llama-bytes-1m --batch 1 --seq 32 --steps 12 --lr 3e-3 --warmup 0 --no-gemm-ceiling "
                 "--data " +
                 (folder / "letters") + " --output " + (folder / "model")),
           0, {"weights in"});
    return folder / "model";
  }();
  return path;
}

std::string sample(const std::string& flags) { return "sample --threads 1 --model " + model() + " " + flags; }

TEST(SampleCli, GoesOnWithAText) {
  EXPECT_EQ(output_of(sample("--prompt 'eeee' --temperature 0 --tokens 12")), std::string(16, 'e') + "\n");
  expect(tigon(sample("--prompt e --tokens 3")), 0, {"3 tokens", "a second", "keys and values"});
}

TEST(SampleCli, TheSameSeedSaysTheSame) {
  const auto text = [](const std::string& flags) {
    return output_of(sample("--prompt e --temperature 3 --tokens 40 " + flags));
  };
  EXPECT_EQ(text("--seed 1"), text("--seed 1"));
  EXPECT_NE(text("--seed 1"), text("--seed 2"));
  EXPECT_EQ(text("--seed 1 --top-k 1"), std::string(41, 'e') + "\n");
  EXPECT_EQ(text("--seed 1 --top-p 1e-9"), std::string(41, 'e') + "\n");
}

TEST(SampleCli, AFileOfPromptsGivesALineOfJsonForEach) {
  const Folder folder;
  std::ofstream(folder / "prompts") << "e\n\neee\r\n\r\nsay \"ee\nee";
  const std::string flags = "--temperature 0 --tokens 5 --prompts " + (folder / "prompts");
  const std::string lines = R"({"prompt":"e","text":"eeeee"}
{"prompt":"eee","text":"eeeee"}
{"prompt":"say \"ee","text":"eeeee"}
{"prompt":"ee","text":"eeeee"}
)";
  EXPECT_EQ(output_of(sample(flags)), lines);
  EXPECT_EQ(output_of(sample("--batch 3 " + flags)), lines);
  EXPECT_EQ(output_of(sample("--batch 1 " + flags)), lines);
}

TEST(SampleCli, EndsBeforeAStop) {
  const auto text = [](const std::string& flags) {
    return output_of(sample("--prompt x --temperature 0 --tokens 9 " + flags));
  };
  const std::string whole = text("");
  ASSERT_EQ(whole.size(), 11U);
  EXPECT_EQ(text("--stop " + whole.substr(4, 2)), whole.substr(0, 1 + whole.substr(1).find(whole.substr(4, 2))) + "\n");
  EXPECT_EQ(text("--stop QQ --stop ZZZ"), whole);  // what is held back comes at the end
}

TEST(SampleCli, SaysWhatIsWrong) {
  const Folder folder;
  std::ofstream(folder / "nothing") << "\n\n";
  expect(tigon("sample --prompt e"), 2, {"--model is required"});
  expect(tigon("sample --prompt e --model " + (folder / "none")), 2, {"does not exist"});
  std::filesystem::create_directories(folder / "empty");
  expect(tigon("sample --prompt e --model " + (folder / "empty")), 1, {"config.json"});
  std::ofstream(folder / "empty/adapter_config.json") << "{}";
  expect(tigon("sample --prompt e --model " + (folder / "empty")), 2, {"these are adapters", "--adapters"});
  expect(tigon(sample("")), 2, {"nothing to continue", "--prompts FILE"});
  expect(tigon(sample("--prompts " + (folder / "nothing"))), 2, {"no prompt in this file"});
  expect(tigon(sample("--prompt e --prompts " + (folder / "nothing"))), 2, {"excludes"});
  expect(tigon(sample("--prompt e --tokens 1000000")), 2, {"too long for this model", "1 to 2048 tokens"});
  expect(tigon(sample("--prompt e --temperature -1")), 2, {"temperature", "got -1"});
  expect(tigon(sample("--prompt e --top-p 0")), 2, {"top-p"});
  expect(tigon(sample("--prompt e --top-k -1")), 2, {"top-k"});
  expect(tigon(sample("--prompt e --temperature nan")), 2, {"temperature"});
  std::filesystem::copy(model(), folder / "cut");
  std::filesystem::resize_file(folder / "cut/model.safetensors", 1000);
  expect(tigon("sample --prompt e --model " + (folder / "cut")), 2, {"model.safetensors"});
}

TEST(SampleCli, TrainingShowsWhatItHasLearnt) {
  const Folder folder;
  std::ofstream(folder / "letters") << std::string(4096, 'e');
  const std::string run =
      "train --model llama-bytes-1m --batch 1 --seq 32 --steps 12 --lr 3e-3 --no-gemm-ceiling --data " +
      (folder / "letters") + " ";
  const std::string flags = "--sample-every 6 --prompt eeee --sample-tokens 5 --log " + (folder / "log");
  expect(tigon(run + flags), 0, {"step 6  says: eeee", "step 12  says: eeeeeeeee\n"});
  EXPECT_NE(bytes_of(folder / "log").find(R"({"step":12,"sample":"eeeeeeeee"})"), std::string::npos);
  expect(tigon(run + "--prompt e"), 2, {"--prompt requires --sample-every"});
  expect(tigon(run + "--sample-every 6 --offload all --lean-loss"), 1, {"the head as a whole", "tigon sample"});
  expect(tigon(run + "--sample-every 6 --prompt " + std::string(3000, 'e')), 2, {"--prompt", "no room", "3000"});
}

// A dialogue waits for a question most of its time.
TEST(SampleCli, CtrlCEndsADialogueThatWaits) {
  int questions[2], answers[2];
  ASSERT_EQ(pipe(questions) + pipe(answers), 0);
  const std::string command = "exec " TIGON_PROGRAM " " + sample("--chat --template chatml --tokens 1");
  const pid_t program = fork();
  if (program == 0) {
    (void)dup2(questions[0], STDIN_FILENO);
    (void)dup2(answers[1], STDOUT_FILENO);
    for (const int file : {questions[0], questions[1], answers[0], answers[1]}) (void)close(file);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  (void)close(answers[1]);
  ASSERT_EQ(write(questions[1], "e\n", 2), 2);
  for (char c = 0; c != '\n';) ASSERT_EQ(read(answers[0], &c, 1), 1);  // the end of the answer
  using namespace std::chrono_literals;
  std::this_thread::sleep_for(300ms);
  (void)kill(program, SIGINT);
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 100 && ended == 0; ++i) {
    std::this_thread::sleep_for(100ms);
    ended = waitpid(program, &status, WNOHANG);
  }
  EXPECT_EQ(ended, program);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
  if (ended == 0) (void)kill(program, SIGKILL), (void)waitpid(program, &status, 0);
  for (const int file : {questions[0], questions[1], answers[0]}) (void)close(file);
}

TEST(EvalCli, ForetellsAText) {
  const Folder folder;
  std::ofstream(folder / "letters") << std::string(1000, 'e');
  const auto eval = [&](const std::string& flags) {
    return tigon("eval --threads 1 --model " + model() + " --data " + flags);
  };
  expect(eval((folder / "letters") + " --seq 32"), 0,
         {"loss 0.", "perplexity 1.", "bits per byte", "999 tokens in rows of 32"});
  expect(eval(TIGON_SOURCE_DIR "/LICENSE"), 0, {"perplexity", "in rows of 1024"});
  std::ofstream(folder / "one") << "e";
  expect(eval(folder / "one"), 2, {"too few tokens"});
  expect(eval((folder / "letters") + " --seq 4096"), 1, {"4096"});
  expect(eval(folder / "none"), 2, {"does not exist"});
}

}  // namespace
}  // namespace tigon::test
