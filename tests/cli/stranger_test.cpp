// What somebody meets who uses the program for the first time: slips are said to be what they are, and cost nothing.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "cli/program.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;

// A command that would train in a moment.
std::string train(const std::string& flags) { return "train --batch 1 --seq 8 --steps 1 --no-gemm-ceiling " + flags; }
const std::string kSmall = "--model llama-bytes-1m ";

TEST(Stranger, TextIsNotTakenForTheTokensOfAnotherVocabulary) {
  const Folder folder;
  fs::create_directories(folder / "model");
  std::ofstream(folder / "model/config.json") << R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 16,
    "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2})";
  const std::string subwords = "--model " + (folder / "model") + " ";
  expect(tigon(train(subwords + "--data " + kText)), 2,
         {"not a token file", "expected a token file for a vocabulary of 300, got plain text", "tigon help data",
          "--bytes"});
  expect(tigon(train(subwords + "--bytes --data " + kText)), 0, {"plain text", "step 1/1"});
  expect(tigon(train(subwords + "--data " + (folder / "text.jsonl"))), 2, {"No such file"});
  std::ofstream(folder / "text.jsonl") << R"({"text": "It is a truth universally acknowledged"})";
  expect(tigon(train(subwords + "--data " + (folder / "text.jsonl"))), 2, {"got JSON lines"});
  expect(tigon(train(kSmall + "--data " + (folder / "text.jsonl"))), 0, {"JSON lines"});
  expect(tigon("help data"), 0, {"TIGONTOK", "AutoTokenizer", "tokens.bin"});
}

// Of a compressed file even a model of bytes learns nothing.
TEST(Stranger, FilesOfOtherFormatsAreNotText) {
  const Folder folder;
  for (const auto& [name, first] : {std::pair{"gzip", "\x1f\x8b\x08"},
                                    {"Parquet", "PAR1"},
                                    {"NumPy", "\x93NUMPY"},
                                    {"Zstandard", "\x28\xb5\x2f\xfd"}}) {
    std::ofstream(folder / "data") << first << std::string(1000, 'x');
    expect(tigon(train(kSmall + "--data " + (folder / "data"))), 2, {"not text", name, "--bytes"});
    expect(tigon(train(kSmall + "--bytes --data " + (folder / "data"))), 0, {name});
  }
  std::ofstream(folder / "cut.parquet") << std::string(1000, 'x');
  expect(tigon(train(kSmall + "--data " + (folder / "cut.parquet"))), 2, {"Parquet"});
}

TEST(Stranger, NothingIsWrittenThatCameFromRandomTokens) {
  const Folder folder;
  for (const std::string flag : {"--output", "--checkpoints"}) {
    expect(tigon(train(kSmall + flag + " " + (folder / "out"))), 2, {flag.c_str(), "the tokens are random", "--data"});
    EXPECT_FALSE(fs::exists(folder / "out"));
  }
  expect(tigon(train(kSmall)), 0, {"random tokens"});
  // A model that has learnt nothing yet is what was asked for.
  expect(tigon("train --steps 0 --batch 1 --seq 8 --no-gemm-ceiling --output " + (folder / "new")), 0, {"weights in"});
  expect(tigon(train(kSmall + "--data " + kText)), 0, {"plain text", "1 steps are", "epochs"});
}

TEST(Stranger, AdviceDoesNotGoInACircle) {
  const Folder folder;
  const std::string command = train(kSmall + "--data " + kText + " --checkpoints " + (folder / "run"));
  expect(tigon(command), 0, {});
  std::ofstream(folder / "run/step-00000001/model.safetensors", std::ios::app) << "damage";
  expect(tigon(command + " --resume"), 1, {"passed over", "all are damaged", "another folder"});
  expect(tigon(command), 2, {"--resume", "another folder"});
}

TEST(Stranger, AnotherSequenceIsNotOtherData) {
  const Folder folder;
  const std::string command =
      kSmall + "--batch 1 --no-gemm-ceiling --data " + kText + " --checkpoints " + (folder / "run");
  expect(tigon("train --seq 8 --steps 1 " + command), 0, {});
  expect(tigon("train --seq 16 --steps 2 --resume " + command), 2, {"this run's seq is not", "expected 8, got 16"});
}

// A model's folder, with the weights that a run wrote.
std::string model_in(const Folder& folder) {
  expect(tigon(train(kSmall + "--data " + kText + " --output " + (folder / "model"))), 0, {});
  return folder / "model";
}

TEST(Stranger, APointerOfGitLfsIsSaidToBeOne) {
  const Folder folder;
  const std::string model = model_in(folder);
  std::ofstream(model + "/model.safetensors") << "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
  expect(tigon(train("--model " + model)), 1, {"model.safetensors", "a pointer of Git LFS", "git lfs pull"});
}

TEST(Stranger, WeightsThatAreNotFiniteAreNotTheLearningRatesFault) {
  const Folder folder;
  const std::string model = model_in(folder);
  std::fstream weights(model + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-4, std::ios::end);
  weights.write("\xff\xff\xff\xff", 4);
  weights.close();
  const Outcome outcome = tigon(train("--model " + model));
  expect(outcome, 2, {"model.safetensors", "not finite, before any step", "other weights"});
  EXPECT_EQ(outcome.text.find("--lr"), std::string::npos) << outcome.text;
}

TEST(Stranger, ANameOfTheHubIsKnownAsOne) {
  expect(tigon("plan --model meta-llama/Llama-3.2-1B"), 2,
         {"hf download meta-llama/Llama-3.2-1B --local-dir Llama-3.2-1B", "--model ./Llama-3.2-1B"});
  const Outcome path = tigon("plan --model ./absent/folder");
  expect(path, 2, {"no folder of this name"});
  EXPECT_EQ(path.text.find("hf download"), std::string::npos) << path.text;
}

TEST(Stranger, WhyAFileCannotBeOpenedIsSaid) {
  const Folder folder;
  expect(tigon(train(kSmall + "--data " + (folder / "absent"))), 2, {"No such file or directory"});
  expect(tigon(train(kSmall + "--log " + (folder / "absent/log"))), 1, {"No such file or directory"});
  fs::create_directories(folder / "model");
  expect(tigon("plan --model " + (folder / "model")), 1, {"config.json", "No such file or directory"});
  fs::create_symlink("circle", folder / "circle");
  expect(tigon(train(kSmall + "--data " + (folder / "circle"))), 2, {"Too many levels of symbolic links"});
}

TEST(Stranger, FlagsAndCommandsThatAreNearAreNamed) {
  expect(tigon("bench"), 2, {"a command is missing", "ops", "See tigon bench --help"});
  expect(tigon("train --epoch 3"), 2, {"no flag '--epoch'", "Did you mean --epochs?"});
  expect(tigon("train --batch_size=3"), 2, {"no flag '--batch_size'", "See tigon train --help."});
  expect(tigon("plan --reccompute block"), 2, {"Did you mean --recompute?"});
  expect(tigon("plan --xyzzyplugh"), 2, {"no flag '--xyzzyplugh'. See tigon plan --help."});
  expect(tigon("trian"), 2, {"Did you mean train?"});
}

TEST(Stranger, TheProcessDoesNotCountItsParent) {
  std::vector<char> large(size_t{512} << 20, 1);  // touched, so that exec carries it on in ru_maxrss
  const Outcome outcome = tigon(train(kSmall), "exec " TIGON_PROGRAM);
  const size_t at = outcome.text.find("the process held ");
  ASSERT_NE(at, std::string::npos) << outcome.text;
  EXPECT_EQ(outcome.text.find("GiB", at), std::string::npos) << outcome.text;
  EXPECT_LT(std::stod(outcome.text.substr(at + 17)), 400) << outcome.text;
  EXPECT_EQ(std::count(large.begin(), large.end(), 1), static_cast<ptrdiff_t>(large.size()));
}

TEST(Stranger, NoFileIsOverwrittenByALogOrByGradients) {
  const Folder folder;
  const std::string json = R"({"text": "mine"})";
  std::ofstream(folder / "mine.jsonl") << json;
  expect(tigon(train(kSmall + "--log " + (folder / "mine.jsonl"))), 2, {"a file that is not a log"});
  expect(tigon(train(kSmall + "--save-gradients " + (folder / "mine.jsonl"))), 2, {"would overwrite a file"});
  EXPECT_EQ(bytes_of(folder / "mine.jsonl"), json);
  std::ofstream(folder / "log-as-data") << R"({"step":1,"loss":5.5})" << std::string(100, 'x');
  expect(tigon(train(kSmall + "--log " + (folder / "log-as-data") + " --data " + (folder / "log-as-data"))), 2,
         {"would overwrite the data"});
}

TEST(Stranger, LabelsThatAreAllIgnoredAreSaid) {
  const Folder folder;
  std::ofstream(folder / "padding") << std::string(500, 'a');
  expect(tigon(train(kSmall + "--ignore-token 97 --data " + (folder / "padding"))), 2,
         {"--ignore-token", "every label of the data is this token"});
  std::ofstream(folder / "padding", std::ios::app) << "b" << std::string(499, 'a');
  const Outcome outcome = tigon(train(kSmall + "--sequential --ignore-token 97 --data " + (folder / "padding")));
  expect(outcome, 0, {"step 1/1  all labels ignored"});
  EXPECT_EQ(outcome.text.find("loss 0.0000  "), std::string::npos) << outcome.text;
}

TEST(Stranger, APipeInAFilesPlaceDoesNotHang) {
  const Folder folder;
  fs::create_directories(folder / "model");
  ASSERT_EQ(mkfifo((folder / "model/config.json").c_str(), 0600), 0);
  expect(tigon("plan --model " + (folder / "model"), "timeout 20 " TIGON_PROGRAM), 1,
         {"config.json", "not a plain file"});
}

TEST(Stranger, SizesAreReadAsPeopleWriteThem) {
  for (const char* size : {"24GiB", "24G", "24gib", "24g", "'24 GiB'", "25769803776"})
    expect(tigon(std::string("plan --model llama-bytes-1m --fit ") + size), 0, {"Within 24.00 GiB"});
  expect(tigon("plan --model llama-bytes-1m --fit 24gb"), 0, {"Within 22.35 GiB"});
  expect(tigon("plan --fit 24Q"), 2, {"no amount of memory", "'24Q'"});
}

TEST(Stranger, AFolderWithAConfigAloneIsAShape) {
  const Folder folder;
  const std::string model = model_in(folder);
  fs::remove(model + "/model.safetensors");
  expect(tigon(train("--model " + model)), 0, {"random weights", "step 1/1"});
  // Weights in a format that is not read must not be passed over.
  std::ofstream(model + "/pytorch_model.bin") << "weights";
  expect(tigon(train("--model " + model)), 1, {"no weights in this folder"});
}

TEST(Stranger, EpochsAreSteps) {
  const Folder folder;
  std::ofstream(folder / "text") << std::string(8 * 10 + 1, 'a');  // ten windows
  const std::string command = "train --seq 8 --no-gemm-ceiling " + kSmall + "--data " + (folder / "text");
  expect(tigon(command + " --batch 2 --epochs 2"), 0, {"10 steps are 2 epochs", "step 10/10", "epoch 2.00"});
  expect(tigon(command + " --batch 4 --epochs 1"), 0, {"step 3/3"});
  expect(tigon(command + " --epochs 1 --steps 3"), 2, {"--epochs", "--steps"});
  expect(tigon("train --epochs 1 --no-gemm-ceiling " + kSmall), 2, {"--epochs", "random tokens have no end"});
}

TEST(Stranger, HelpIsInWords) {
  const Outcome help = tigon("train --help");
  expect(help, 0,
         {"Model and step:", "Memory:", "Data:", "Training:", "Results:", "--batch N", "(default 8)",
          "--schedule cosine|linear|constant", "--output FOLDER"});
  EXPECT_EQ(help.text.find("INT"), std::string::npos) << help.text;
  EXPECT_EQ(tigon("help train").text, help.text);
  EXPECT_EQ(tigon("help").text, tigon("--help").text);
  EXPECT_EQ(tigon("help bench ops").text, tigon("bench ops --help").text);
  expect(tigon("help trian"), 2, {"train", "data"});
}

// What a terminal of so many columns gets, line by line as it is rewritten.
std::vector<std::string> lines_on_terminal(unsigned short columns) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = columns;
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    execl(TIGON_PROGRAM, "tigon", "train", "--model", "llama-bytes-1m", "--batch", "1", "--seq", "8", "--steps", "3",
          "--data", kText.c_str(), nullptr);
    _exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(terminal, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(terminal);
  waitpid(pid, nullptr, 0);
  std::vector<std::string> lines;
  const std::string start = "\r\033[K";
  for (size_t at = text.find(start); at != std::string::npos; at = text.find(start, at + 1)) {
    const size_t begin = at + start.size();
    lines.push_back(text.substr(begin, text.find_first_of("\r\n", begin) - begin));
  }
  return lines;
}

TEST(Stranger, TheLineOfAStepFitsTheTerminal) {
  for (const unsigned short columns : {20, 40, 80, 100, 160}) {
    const std::vector<std::string> lines = lines_on_terminal(columns);
    ASSERT_EQ(lines.size(), 3u) << columns;
    for (const std::string& line : lines) {
      // Bytes that begin a character; each is one column wide.
      const auto width = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LT(width, columns) << line;
      EXPECT_EQ(line.find('\033'), std::string::npos) << line;
    }
    const std::string& second = lines[1];
    std::vector<const char*> fields;
    if (columns >= 80) fields = {"step 2/3", "loss", "tokens/s", "left", "MiB"};
    if (columns >= 100) fields.insert(fields.end(), {"norm", "lr"});
    if (columns >= 160) fields.push_back("epoch");
    for (const char* field : fields) EXPECT_NE(second.find(field), std::string::npos) << columns << ": " << second;
    EXPECT_EQ(second.find("█") != std::string::npos, columns >= 160) << second;
  }
}

}  // namespace
}  // namespace tigon::test
