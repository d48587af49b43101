// tigon plan and tigon train as a person meets them, and as a power cut does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/program.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;

// Starts the program with its output in a file.
pid_t start(const std::vector<std::string>& arguments, const std::string& output) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  (void)signal(SIGHUP, SIG_DFL);  // also where the tests themselves run under nohup
  std::vector<char*> argv = {const_cast<char*>(TIGON_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(TIGON_PROGRAM, argv.data());
  _exit(127);
}

// Until the file has the text in it, or for half a minute.
void wait_for(const std::string& file, const char* text) {
  for (int i = 0; i < 600 && bytes_of(file).find(text) == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::vector<std::string> small_run(const std::string& folder, int steps) {
  return {"train",
          "--model",
          "llama-bytes-1m",
          "--batch",
          "1",
          "--seq",
          "16",
          "--threads",
          "1",
          "--steps",
          std::to_string(steps),
          "--checkpoints",
          folder,
          "--save-every",
          "2",
          "--lr",
          "1e-3",
          "--no-gemm-ceiling",
          "--data",
          kText};
}

TEST(TrainCli, DocumentsThatAreApartSayHowManyTokensCount) {
  const std::string run = "train --model llama-bytes-1m --batch 2 --seq 64 --steps 2 --no-gemm-ceiling --data " + kText;
  expect(tigon(run + " --documents apart --document-end 10"), 0, {"tokens/s, ", " count"});
  expect(tigon(run + " --documents apart"), 2, {"does not know its documents", "tigon tokenize", "--document-end"});
  EXPECT_EQ(tigon(run).text.find(" count"), std::string::npos);
  expect(tigon(run + " --documents apart --document-end 256"), 2, {"--document-end", "below 256"});
  expect(tigon(run + " --document-end 10"), 2, {"needs --documents apart"});
}

TEST(TrainCli, HelpTeaches) {
  expect(tigon("plan --help"), 0, {"--fit", "--recompute", "selective", "bf16-sr", "Examples:", "llama-3.2-1b"});
  expect(tigon("train --help"), 0, {"--data", "tigon help data", "--resume", "Ctrl-C", "--fused", "Examples:"});
}

TEST(TrainCli, PlanNeedsNoGpuAndNoFile) {
  expect(tigon("plan --model llama-3.2-1b --batch 8 --seq 1024 --precision bf16-sr --recompute block --fit 24GiB"), 0,
         {"1235.8 M parameters", "weights", "gradients", "states", "layer inputs", "activations", "all",
          "Alive at the peak", "By formula", "Within 24.00 GiB", "batches up to", "This run fits", "loss by"});
  expect(tigon("plan --model llama-3.1-8b --precision bf16 --fit 24GiB"), 0,
         {"needs", "more than that", "--recompute selective", "--precision bf16-sr"});
  expect(tigon("plan --model llama-3.2-1b --device cuda --batch 1"), 0, {"weights", "all"});
  expect(tigon("plan --model llama-25m --precision bf16"), 0, {"A step takes at least", "measured here", "+0 %"});
  // Where something is away already there is advice too, for the device and for the host.
  for (const char* offload : {"weights=host", "states=host", "all --update gpu", "all --device cuda"}) {
    expect(tigon(std::string("plan --model llama-25m --host 1MiB --offload ") + offload), 0, {"--recompute block"});
  }
  expect(tigon("plan --model llama-3.2-1b --precision bf16-sr --optimizer adamw8 --adamw8-embedding"), 0,
         {"bf16-sr, adamw8", "static, 6.031 bytes a parameter"});
  expect(tigon("plan --model llama-3.2-1b --precision bf16-sr"), 0,
         {"static, 8 bytes a parameter", "--optimizer apollo-mini", "or --optimizer adamw8"});
  expect(tigon("plan --model llama-3.2-1b --precision bf16-sr --optimizer apollo --rank 64"), 0,
         {"bf16-sr, apollo, --rank 64 --gap 200 --scale 1"});
  expect(tigon("plan --model llama-25m --optimizer galore --rank 4096"), 2, {"q_proj", "--rank of at most"});
  expect(tigon("plan --model llama-25m --rank 64"), 2, {"--optimizer apollo", "got adamw"});
}

// The same flags mean the same run: what the plan says of none is what a run of none takes.
TEST(TrainCli, PlanAndTrainHaveTheSameDefaults) {
  const std::string plan = tigon("plan").text, run = tigon("train --steps 0 --no-gemm-ceiling").text;
  const size_t begin = run.find("weights "), end = run.find('\n', run.find("\nall "));
  ASSERT_NE(end, std::string::npos) << run;
  EXPECT_NE(plan.find(run.substr(begin, end - begin)), std::string::npos) << plan << run;
}

TEST(TrainCli, StagesOfTheOtherMlpAreRefused) {
  const std::string command = "plan --model llama-bytes-1m --batch 1 --seq 8 --recompute ";
  expect(tigon(command + "norm1,mlp"), 2, {"without --mlp-tile", "gate_up"});
  expect(tigon(command + "norm1,gate_up --mlp-tile 4"), 2, {"with --mlp-tile", "mlp"});
  for (const char* good : {"norm1,gate_up", "norm1,mlp --mlp-tile 4", "selective --mlp-tile 4", "block --mlp-tile 4"}) {
    expect(tigon(command + good), 0, {"weights"});
  }
}

TEST(TrainCli, WhyThereIsNoCudaBackendIsSaid) {
  const Folder folder;
  ASSERT_EQ(setenv("TIGON_CUDA_LIBRARY", (folder / "absent.so").c_str(), 1), 0);
  const std::string command = "plan --model llama-bytes-1m --device cuda --batch 1 --seq 8";
  expect(tigon(command), 0, {"there is no file", "absent.so, which TIGON_CUDA_LIBRARY names"});
  std::ofstream(folder / "absent.so") << "not a library";
  expect(tigon(command), 0, {"the CUDA backend could not be opened", "absent.so"});
  unsetenv("TIGON_CUDA_LIBRARY");
}

// What it proposes must be something that it would take.
TEST(TrainCli, PlanOfAVeryLargeStepHasNoAdviceOutOfRange) {
  expect(tigon("plan --model llama-bytes-1m --seq 1 --batch 40000 --accumulate 2"), 0, {"--recompute selective"});
}

TEST(TrainCli, OutputThatCannotBeWrittenIsAnError) {
  expect(tigon("plan --model llama-bytes-1m > /dev/full"), 1, {});
  expect(tigon("plan --help > /dev/full"), 1, {});
  const Folder folder;
  std::ofstream(folder / "file") << "no folder";
  const std::string command =
      "train --model llama-bytes-1m --batch 1 --seq 8 --steps 1 --no-gemm-ceiling --data " + kText + " ";
  for (const char* flag : {"--output ", "--checkpoints "}) {
    const Outcome outcome = tigon(command + flag + (folder / "file/inside"));
    expect(outcome, 1, {"file/inside", "Choose a folder"});
    EXPECT_EQ(outcome.text.find("step 1/1"), std::string::npos) << "found out after the run: " << outcome.text;
  }
  expect(tigon(command + "--log /dev/full"), 0, {"/dev/full: the log cannot be written", "step 1/1"});
}

TEST(TrainCli, ATrainedModelMayReplaceTheOneItCameFrom) {
  const Folder folder;
  const std::string common =
      " --batch 1 --seq 8 --steps 1 --no-gemm-ceiling --bytes --data " + kText + " --output " + (folder / "model");
  expect(tigon("train --model llama-bytes-1m" + common), 0, {});
  std::ofstream(folder / "model/tokenizer.json") << "{}";
  const std::string before = bytes_of(folder / "model/model.safetensors");
  expect(tigon("train --model " + (folder / "model") + common), 0, {"weights in"});
  EXPECT_TRUE(bytes_of(folder / "model/model.safetensors") != before);
  EXPECT_EQ(bytes_of(folder / "model/tokenizer.json"), "{}");
}

TEST(TrainCli, BadInputIsAnsweredWithWhatWasExpected) {
  expect(tigon("plan --model llama-9"), 2, {"no built-in model", "llama-3.2-1b", "'llama-9'"});
  expect(tigon("plan --fit lots"), 2, {"no amount of memory", "24GiB"});
  expect(tigon("plan --recompute everything"), 2, {"no such stage", "norm1"});
  expect(tigon("plan --fused ropes"), 2, {"no such op to fuse", "flce"});
  expect(tigon("plan --precision fp8"), 2, {"fp8", "bf16-sr"});
  expect(tigon("plan --model llama-2-7b --seq 100000"), 1, {"longer than the model's positions", "4096"});
  expect(tigon("plan --fit 0.5"), 2, {"no amount of memory", "'0.5'"});
  expect(tigon("plan --fit ''"), 2, {"no amount of memory"});
  expect(tigon("plan --chunk 5 --liger-chunk"), 2, {"--chunk", "--liger-chunk"});
  expect(tigon("train --resume"), 2, {"--checkpoints"});
  expect(tigon("train --steps 0 --save-every 2"), 2, {"--save-every", "--checkpoints"});
  expect(tigon("train --steps 0 --save-every -2 --checkpoints x"), 2, {"--save-every", "-2"});
  expect(tigon("train --steps 0 --eval-every 2"), 2, {"--eval-every", "--eval-data", "--eval-fraction"});
  expect(tigon("train --steps 0 --eval-fraction 0.5 --eval-data /dev/null"), 2, {"--eval-fraction", "--eval-data"});
  expect(tigon("train --steps 0 --seed -1"), 2, {"--seed", "-1"});
  expect(tigon("train --steps 0 --seed 18446744073709551616"), 2, {"--seed", "18446744073709551616"});
  expect(tigon("train --steps 0 --beta2 1 --no-gemm-ceiling"), 2, {"beta2", "expected 0 to 0.99999999, got 1"});
  for (const char* flag : {"--lr", "--steps", "--output", "--checkpoints", "--log", "--data", "--model"}) {
    expect(tigon(std::string("train --steps 0 ") + flag + " ''"), 2, {flag});
    expect(tigon(std::string("train --no-gemm-ceiling ") + flag + "="), 2, {flag});
  }
  expect(tigon("train --data /nonexistent"), 2, {"--data"});
  expect(tigon("train --no-gemm-ceiling --model llama-bytes-1m --steps 0 --ignore-token 256"), 2,
         {"--ignore-token", "expected below 256, or a negative one for none, got 256"});
  expect(tigon("train --no-gemm-ceiling --model llama-bytes-1m --steps 0 --ignore-token -100"), 0, {});
  expect(tigon("train --no-gemm-ceiling --data /dev/stdin < /dev/null"), 1, {"/dev/stdin", "not a plain file"});
  const Folder folder;
  std::ofstream(folder / "short") << "short";
  expect(tigon("train --data " + (folder / "short")), 2, {"too few tokens for one sequence; expected"});
  std::ofstream(folder / "text") << std::string(400, 'a');
  expect(tigon("train --no-gemm-ceiling --eval-fraction 0.01 --data " + (folder / "text")), 2,
         {"too few tokens for one sequence from token 396 to 400; expected at least 257, got 4"});
  expect(tigon("train --model llama-bytes-1m --steps 1 --batch 1 --seq 8 --resume --data " + kText + " --checkpoints " +
               (folder / "none")),
         1, {"no checkpoint to resume from", "Leave --resume out"});
  fs::create_directories(folder / "model");
  expect(tigon("train --model " + (folder / "model")), 1, {"config.json"});
  std::ofstream(folder / "model/config.json") << R"({"model_type": "mamba"})";
  expect(tigon("train --model " + (folder / "model")), 1, {"'mamba'", "llama, mistral, qwen2, qwen3, gemma"});
}

TEST(TrainCli, TrainsTellsAndSaves) {
  const Folder folder;
  std::ofstream text(folder / "text");
  for (int i = 0; i < 200; ++i) text << "It is a truth universally acknowledged. ";
  text.close();
  const std::string command = "train --model llama-bytes-1m --seq 32 --steps 6 --lr 3e-3 --data " + (folder / "text") +
                              " --eval-fraction 0.2 --eval-every 3 --log " + (folder / "log") + " --output " +
                              (folder / "out") + " --checkpoints " + (folder / "run");
  expect(tigon(command + " --batch 2"), 0,
         {"loss by 64 tokens", "weights", "gradients", "step 1/6", "step 6/6", "evaluation loss", "saved", "tokens/s",
          "% of GEMM"});
  std::ifstream log(folder / "log");
  int lines = 0;
  std::string last;
  for (std::string line; std::getline(log, line); ++lines) {
    EXPECT_EQ(line.front(), '{');
    EXPECT_EQ(line.find("gemm_share") != std::string::npos, line.find("grad_norm") != std::string::npos);
    last = line;
  }
  EXPECT_EQ(lines, 6 + 2 + 1);
  EXPECT_NE(last.find(R"("end":true)"), std::string::npos) << last;
  EXPECT_TRUE(fs::exists(folder / "out/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder / "out/config.json"));
  expect(tigon(command + " --batch 2"), 2, {"checkpoints of another run", "--resume"});
  expect(tigon(command + " --resume --batch 4"), 2, {"batch", "expected 2", "got 4"});
  expect(tigon(command + " --resume --batch 2 --optimizer adamw8"), 2, {"--optimizer", "expected adamw", "got adamw8"});
  expect(tigon(command + " --resume --batch 2 --optimizer apollo --rank 3"), 2,
         {"--optimizer", "got apollo, --rank 3"});
  expect(tigon(command + " --resume --batch 2 --chunk 7"), 2, {"chunk of the loss", "--chunk", "expected 64", "got 7"});
}

class StoppedBy : public testing::TestWithParam<int> {};

TEST_P(StoppedBy, FinishesTheStepAndSaves) {
  const Folder folder;
  const std::string run = folder / "run", output = folder / "output";
  const pid_t pid = start(small_run(run, 1000000), output);
  wait_for(output, "step 3/");
  kill(pid, GetParam());
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << bytes_of(output);
  EXPECT_EQ(WEXITSTATUS(status), 128 + GetParam()) << bytes_of(output);
  const std::string text = bytes_of(output);
  EXPECT_NE(text.find("Stopped after step"), std::string::npos) << text;
  EXPECT_NE(text.find("--resume"), std::string::npos) << text;
  // What it saved is the step it stopped at.
  const size_t at = text.find("Stopped after step ");
  char name[32];
  (void)snprintf(name, sizeof name, "/step-%08d", atoi(text.c_str() + at + 19));
  EXPECT_TRUE(fs::exists(run + name)) << name;
}

// What was asked for is done: there is nothing to go on with.
TEST_P(StoppedBy, InItsLastStepARunEndsAsAnyOther) {
  const Folder folder;
  const std::string output = folder / "output";
  std::vector<std::string> arguments = small_run(folder / "run", 1);
  arguments.insert(arguments.end(), {"--eval-fraction", "0.5", "--eval-batches", "2000"});
  const pid_t pid = start(arguments, output);
  wait_for(output, "step 1/");
  kill(pid, GetParam());
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  expect({WEXITSTATUS(status), bytes_of(output)}, 0, {"evaluation loss", "1 steps, loss"});
}

INSTANTIATE_TEST_SUITE_P(TrainCli, StoppedBy, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(TrainCli, ARunGoesOnWithoutItsOutput) {
  const Folder folder;
  const std::string run = folder / "run";
  const pid_t pid = start(small_run(run, 2), "/dev/full");
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  EXPECT_TRUE(fs::exists(run + "/step-00000002"));
}

TEST(TrainCli, ARunWhoseReaderIsGoneSaves) {
  const Folder folder;
  std::string command;
  for (const std::string& argument : small_run(folder / "run", 1000000)) command += argument + " ";
  expect(tigon(command + "--log " + (folder / "log") + " | head -n 1"), 0, {"M parameters"});
  const std::string log = bytes_of(folder / "log");
  const size_t end = log.find(R"({"end":true,"step":)");
  ASSERT_NE(end, std::string::npos) << log;
  char name[32];
  (void)snprintf(name, sizeof name, "run/step-%08d", atoi(log.c_str() + end + 19));
  EXPECT_TRUE(fs::exists(folder / name)) << name;
}

TEST(TrainCli, WithoutStandardStreamsNothingLandsInOtherFiles) {
  const Folder folder;
  const std::string command = "train --model llama-bytes-1m --batch 1 --seq 8 --steps 2 --no-gemm-ceiling --data " +
                              kText + " --checkpoints " + (folder / "run") + " --log " + (folder / "log");
  EXPECT_EQ(std::system((TIGON_PROGRAM " " + command + " <&- >&- 2>&-").c_str()), 1 << 8);
  std::ifstream log(folder / "log");
  int lines = 0;
  for (std::string line; std::getline(log, line); ++lines) EXPECT_TRUE(line.starts_with('{')) << line;
  EXPECT_EQ(lines, 3);
  expect(tigon(command + " --resume"), 0, {"Nothing to train"});
}

TEST(TrainCli, OnATerminalAnErrorHasALineOfItsOwn) {
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    // Tokens that the batch does not have get no gradient, and 0/0 without eps.
    execl(TIGON_PROGRAM, "tigon", "train", "--model", "llama-bytes-1m", "--batch", "1", "--seq", "8", "--steps", "3",
          "--eps", "0", "--no-gemm-ceiling", nullptr);
    _exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(terminal, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(terminal);
  int status = 0;
  waitpid(pid, &status, 0);
  expect({WEXITSTATUS(status), text}, 2, {"step 2/3", "\r\ntigon: step 2: the gradient is not finite"});
}

TEST(TrainCli, CtrlCDoesNotWaitForAnEvaluation) {
  const Folder folder;
  const std::string output = folder / "output";
  std::vector<std::string> arguments = small_run(folder / "run", 1000000);
  arguments.insert(arguments.end(), {"--eval-fraction", "0.5"});
  const pid_t pid = start(arguments, output);
  wait_for(output, "step 3/");
  kill(pid, SIGINT);
  int status = 0;
  waitpid(pid, &status, 0);
  expect({WEXITSTATUS(status), bytes_of(output)}, 130, {"Stopped after step"});
  EXPECT_EQ(bytes_of(output).find("evaluation"), std::string::npos) << bytes_of(output);
}

TEST(TrainCli, OneRunAtATimeInAFolder) {
  const Folder folder;
  const std::string run = folder / "run", output = folder / "output";
  const pid_t pid = start(small_run(run, 1000000), output);
  wait_for(output, "step 3/");
  const std::string second =
      "train --model llama-bytes-1m --batch 1 --seq 16 --no-gemm-ceiling --data " + kText + " --checkpoints " + run;
  expect(tigon(second), 2, {"another run is using this folder"});
  expect(tigon(second + " --resume"), 2, {"another run is using this folder"});
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  expect(tigon(second + " --resume --steps 1"), 0, {"resumed after step"});
}

TEST(TrainCli, ResumedWithOtherDataOrLabelsIsRefused) {
  const Folder folder;
  std::ofstream(folder / "one") << std::string(500, 'a');
  std::ofstream(folder / "other") << std::string(500, 'b');
  const std::string command = "train --model llama-bytes-1m --batch 1 --seq 8 --no-gemm-ceiling --checkpoints " +
                              (folder / "run") + " --data " + (folder / "");
  expect(tigon(command + "one --steps 1"), 0, {});
  expect(tigon(command + "other --steps 2 --resume"), 2, {"data", "checkpoint's"});
  expect(tigon(command + "one --steps 2 --resume --ignore-token 98"), 2, {"--ignore-token", "expected -1, got 98"});
  std::string larger = command;
  larger.replace(larger.find("-1m"), 3, "-6m");
  expect(tigon(larger + "one --steps 2 --resume"), 2,
         {"this run's model is not the checkpoint's; expected \"hidden_size\": 128, got \"hidden_size\": 256."});
  expect(tigon(command + "one --steps 2 --resume"), 0, {"resumed after step 1"});
  expect(tigon(command + "one --steps 2 --resume"), 0, {"Nothing to train: 2 of 2 steps are done"});
}

TEST(TrainCli, AFileOfTheModelThatCannotBeCopiedIsNamed) {
  const Folder folder;
  const std::string command =
      "train --batch 1 --seq 8 --steps 1 --no-gemm-ceiling --bytes --data " + kText + " --model ";
  expect(tigon(command + "llama-bytes-1m --output " + (folder / "model")), 0, {"weights in"});
  std::ofstream(folder / "model/tokenizer.json") << "{}";
  expect(tigon(command + (folder / "model") + " --output " + (folder / "copied")), 0, {"weights in"});
  EXPECT_EQ(bytes_of(folder / "copied/tokenizer.json"), "{}");
  fs::create_directories(folder / "other/tokenizer.json");
  expect(tigon(command + (folder / "model") + " --output " + (folder / "other")), 1,
         {"tokenizer.json", "the weights are written", "Copy it from"});
  EXPECT_TRUE(fs::exists(folder / "other/model.safetensors"));
}

TEST(TrainCli, ADamagedCheckpointIsPassedOverAndPushesNothingOut) {
  const Folder folder;
  const std::string command =
      "train --model llama-bytes-1m --batch 1 --seq 8 --no-gemm-ceiling --save-every 1 --data " + kText +
      " --checkpoints " + (folder / "run");
  expect(tigon(command + " --steps 3 --keep 3"), 0, {});
  std::ofstream(folder / "run/step-00000003/model.safetensors", std::ios::app) << "damage";
  expect(tigon(command + " --steps 2 --keep 1 --resume"), 0, {"passed over", "step-00000003", "Nothing to train"});
  fs::remove_all(folder / "run/step-00000002");
  expect(tigon(command + " --steps 2 --keep 1 --resume"), 0, {"resumed after step 1", "saved"});
  expect(tigon(command + " --steps 2 --keep 1 --resume"), 0, {"resumed after step 2"});
}

TEST(TrainCli, SpoiledWeightsAreNotSaved) {
  const Folder folder;
  const std::string command =
      "train --model llama-bytes-1m --batch 1 --seq 8 --no-gemm-ceiling --save-every 1 --data " + kText +
      " --checkpoints " + (folder / "run") + " --output " + (folder / "out");
  expect(tigon(command + " --steps 1"), 0, {});
  const std::string before = bytes_of(folder / "out/model.safetensors");
  expect(tigon(command + " --steps 2 --eps 0 --resume"), 2, {"embed_tokens", "a value is not finite", "--eps above 0"});
  EXPECT_FALSE(fs::exists(folder / "run/step-00000002"));
  EXPECT_FALSE(fs::exists(folder / "run/step-00000002.unfinished"));
  EXPECT_TRUE(bytes_of(folder / "out/model.safetensors") == before);
  expect(tigon(command + " --steps 2 --resume"), 0, {"resumed after step 1"});
}

TEST(TrainCli, GoesOnFromAChosenStep) {
  const Folder folder;
  const std::string command =
      "train --model llama-bytes-1m --batch 1 --seq 8 --no-gemm-ceiling --save-every 1 --keep 9 --data " + kText +
      " --checkpoints " + (folder / "run");
  const std::string third = folder / "run/step-00000003", weights = "/model.safetensors";
  expect(tigon(command + " --steps 4 --schedule constant"), 0, {});
  expect(tigon(command + " --steps 3 --resume 9"), 2, {"no checkpoint of this step", "step-00000004"});
  expect(tigon(command + " --steps 3 --resume x"), 2, {"--resume", "not a step", "got 'x'"});
  expect(tigon(command + " --steps 3 --resume ''"), 2, {"--resume", "not a step"});
  expect(tigon(command + " --steps 3 --resume 2 --schedule constant"), 0,
         {"resumed after step 2", "set aside: ", "step-00000004.set-aside"});
  EXPECT_TRUE(bytes_of(third + weights) == bytes_of(third + ".set-aside" + weights));
  expect(tigon(command + " --steps 3 --resume"), 0, {"resumed after step 3"});
  expect(tigon(command + " --steps 3 --resume 1 --schedule constant"), 0, {"step-00000003.set-aside-2"});
}

// A full disk cuts a line off.
TEST(TrainCli, ALogThatIsGoneOnWithStaysJson) {
  const Folder folder;
  const std::string command = "train --model llama-bytes-1m --batch 1 --seq 8 --no-gemm-ceiling --data " + kText +
                              " --checkpoints " + (folder / "run") + " --log " + (folder / "log");
  expect(tigon(command + " --steps 1"), 0, {});
  const std::string whole = bytes_of(folder / "log");
  std::ofstream(folder / "log", std::ios::app) << R"({"step":2,"lo)";
  expect(tigon(command + " --steps 2 --resume"), 0, {});
  const std::string now = bytes_of(folder / "log");
  EXPECT_TRUE(now.starts_with(whole + R"({"step":2,"loss":)")) << now;
}

TEST(TrainCli, OffloadTellsWhatItMoves) {
  const Folder folder;
  const std::string run = "--model llama-bytes-1m --batch 1 --seq 8 --recompute block --accumulate 2 --order layers ";
  expect(tigon("plan " + run + "--offload all+checkpoints"), 0,
         {"offload all+checkpoints, update cpu, by layers", "device ", "host, pinned", "host  "});
  expect(tigon("train --steps 2 --no-gemm-ceiling " + run + "--offload all"), 0,
         {"compute ", "copies ", "a step moved", "to the device", "update: host 100 %, device 0 %",
          "ms a step of the host"});
  expect(tigon("train --steps 2 " + run + "--offload all"), 0, {"by measured rates at least ", "; it took "});
  expect(tigon("train --steps 2 --no-gemm-ceiling --offload weights=host --model llama-bytes-1m --batch 1 --seq 8"), 0,
         {"offload weights=host, update gpu", "update: host 0 %, device 100 %\n"});
  expect(tigon("plan --offload weights=host --update both"), 2, {"--update", "gradients=host", "use --update gpu"});
  expect(tigon("plan --offload all --update tpu"), 2, {"nobody of that name updates", "auto, cpu, gpu or both"});
  const std::string nvme = "--offload all,states=nvme --offload-dir " + (folder / "blocks");
  expect(tigon("plan " + run + nvme), 0, {"disk  ", "states ", "a step writes", "there and reads"});
  expect(tigon("train --steps 2 --no-gemm-ceiling " + run + nvme), 0,
         {"there: ", (folder / "blocks").c_str(), "in all the disk wrote"});
  expect(tigon("plan " + run + nvme + " --fit 20MiB --host 1MiB --disk 1GiB"), 0,
         {"Within 20.0 MiB, 1.0 MiB of the host, ", " of the disk: not even one", "more than that on the host",
          "This run fits on the disk", "To need less of the host", "gradients=nvme"});
  expect(tigon("plan --disk much"), 2, {"no amount of memory", "much"});
  expect(tigon("plan --offload states=nvme"), 1, {"--offload", "on the disk is updated by the host"});
  expect(tigon("plan --offload all,states=nvme --update gpu"), 1, {"--offload", "--update cpu"});
  expect(tigon("plan --offload weights=moon"), 2, {"there is no such home", "moon"});
  expect(tigon("plan --order tokens"), 2, {"--order", "batches or layers"});
}

// Also while the disk is measured, before the run and for a plan.
TEST(TrainCli, ALimitOfFilesIsNoDeath) {
  const Folder folder;
  const std::string offload = " --model llama-bytes-1m --offload all,states=nvme --offload-dir " + (folder / "blocks");
  expect(tigon("train --steps 1" + offload, "ulimit -f 4; " TIGON_PROGRAM), 1, {"no room for the file", "larger disk"});
  expect(tigon("plan" + offload, "ulimit -f 4; " TIGON_PROGRAM), 0, {"disk"});
}

TEST(TrainCli, WhatCannotBeRecordedIsSaid) {
  const Folder folder;
  const std::string run = "train --model llama-bytes-1m --batch 1 --seq 8 --no-gemm-ceiling ";
  const std::string trace = folder / "t.pt.trace.json.gz", snapshot = folder / "s.pickle", tb = folder / "tb";
  expect(tigon(run + "--trace " + (folder / "t.txt")), 2, {"t.txt", "ends in .pt.trace.json"});
  expect(tigon(run + "--snapshot " + (folder / "no/s")), 1, {"no/s", "No such file"});
  expect(tigon(run + "--snapshot " + trace + " --trace " + trace), 2, {"would be the same file"});
  expect(tigon(run + "--tensorboard " + kText), 1, {"files cannot be made"});
  expect(tigon(run + "--nvtx"), 2, {"--nvtx", "--device cuda"});
  for (const char* steps : {"0-2", "x", "3-", "-", "99999999999999"})
    expect(tigon(run + "--trace-steps '" + steps + "'"), 2, {"--trace-steps", "counted from 1"});
  expect(tigon(run + "--trace-steps 4-2"), 2, {"last step of a trace"});

  // A shorter run shows what it has, and one without steps nothing.
  const std::string all = run + "--trace " + trace + " --snapshot " + snapshot + " --tensorboard " + tb;
  expect(tigon(all + " --steps 0"), 0, {"Nothing to train"});
  EXPECT_FALSE(fs::exists(trace) || fs::exists(snapshot));
  expect(tigon(all + " --steps 1"), 0, {"the trace of step 1 is in", "the snapshot of step 1 is in"});
  expect(tigon(all + " --steps 3 --trace-steps 2-9"), 0, {"the trace of steps 2 to 3 is in", "the snapshot of step 2"});

  // On a full disk the run goes on: a file is whole, the one before, or none.
  const std::string before = bytes_of(trace);
  const Outcome full = tigon(all + " --steps 9", "ulimit -f 4; " TIGON_PROGRAM);
  expect(full, 0, {"the trace is not written, the run goes on", "the snapshot is not written", "step 9/9"});
  EXPECT_TRUE(bytes_of(trace) == before);
  for (const auto& entry : fs::directory_iterator(folder / "")) EXPECT_NE(entry.path().extension(), ".tmp");
}

TEST(TrainCli, AnInterruptedRunWritesWhatItRecorded) {
  const Folder folder;
  for (const bool early : {false, true}) {
    const std::string output = folder / "output", trace = folder / (early ? "early.json" : "late.json");
    std::vector<std::string> arguments = small_run(folder / (early ? "early" : "late"), 1000000);
    arguments.insert(arguments.end(), {"--trace", trace, "--trace-steps", early ? "999999-999999" : "2-999999"});
    fs::remove(output);
    const pid_t pid = start(arguments, output);
    wait_for(output, "step 5/");
    kill(pid, SIGINT);
    int status = 0;
    waitpid(pid, &status, 0);
    expect({WEXITSTATUS(status), bytes_of(output)}, 130,
           {early ? "the run ended before step 999999" : "the trace of steps 2 to ", "Stopped after step"});
    EXPECT_EQ(fs::exists(trace), !early);
    EXPECT_TRUE(early || bytes_of(trace).ends_with("}\n]}\n"));
  }
}

// Killed again and again at any moment, and each time resumed, in other homes: the end is that of a run that nobody
// disturbed.
TEST(TrainCli, KilledAtAnyMomentItGoesOn) {
  constexpr int kSteps = 160, kKills = 15;
  const Folder folder;
  const std::string calm = folder / "calm", killed = folder / "killed", output = folder / "output",
                    blocks = folder / "blocks";
  const auto run_to_end = [&](const std::vector<std::string>& arguments) {
    int status = 0;
    waitpid(start(arguments, output), &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << bytes_of(output);
  };
  const auto arguments_for = [&](const std::string& runs) {
    std::vector<std::string> arguments = small_run(runs, kSteps);
    bool any = false;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(runs, none)) {
      // One that is whole and was killed before it got its name counts too.
      any = any || fs::exists(entry.path() / "checkpoint.json");
    }
    if (any) arguments.emplace_back("--resume");
    return arguments;
  };
  run_to_end(arguments_for(calm));
  int hit = 0;
  for (int i = 0; i < kKills; ++i) {
    std::vector<std::string> arguments = arguments_for(killed);
    const char* const homes[] = {"none", "weights=nvme,gradients=nvme,states=nvme,checkpoints=nvme", "all+checkpoints",
                                 "all,states=nvme", "optimizer"};
    arguments.insert(arguments.end(), {"--offload", homes[i % 5], "--offload-dir", blocks});
    if (i % 2 == 0 && i % 5 != 1 && i % 5 != 3)
      arguments.insert(arguments.end(), {"--update", i % 3 == 0 ? "gpu" : "auto"});
    const pid_t pid = start(arguments, output);
    // From before the first step to many steps in, in steps that hit saves as well.
    std::this_thread::sleep_for(std::chrono::milliseconds(15 + 37 * i % 400));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    const bool error = WIFEXITED(status) && WEXITSTATUS(status) != 0;
    ASSERT_FALSE(error) << "kill " << i << ": " << bytes_of(output);
    hit += WIFSIGNALED(status) ? 1 : 0;
  }
  EXPECT_GT(hit, kKills / 2) << "the run was over before it could be killed";
  EXPECT_TRUE(fs::is_empty(blocks));  // where files have no name
  run_to_end(arguments_for(killed));
  const std::string last = "/step-00000160/";
  for (const char* file : {"model.safetensors", "state.safetensors"}) {
    const std::string expected = bytes_of(calm + last + file);
    ASSERT_FALSE(expected.empty());
    EXPECT_TRUE(bytes_of(killed + last + file) == expected) << file;
  }
}

}  // namespace
}  // namespace tigon::test
