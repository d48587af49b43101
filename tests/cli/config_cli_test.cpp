// --config and --print-config: a run as a file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/program.hpp"

namespace tigon::test {
namespace {

const std::string kSmall = "--model llama-bytes-1m --batch 1 --seq 16 --threads 1 --no-gemm-ceiling ";

std::string write(const Folder& folder, const std::string& text, const std::string& name = "run.toml") {
  std::ofstream(folder / name) << text;
  return folder / name;
}

TEST(Config, GivesWhatTheLineDoesNotAndTheLineWins) {
  const Folder folder;
  const std::string file = write(folder,
                                 "# a run\nmodel = \"llama-bytes-1m\"\nbatch = 1\nseq = 16\nthreads = 1\nsteps = 3\n"
                                 "lr = 1e-3\ngemm-ceiling = false\nprecision = 'bf16'\n");
  expect(tigon("train --config " + file), 0, {"3 steps"});
  expect(tigon("train --config=" + file + " --steps 2"), 0, {"2 steps"});
  // Before or behind, and what excludes a flag of the file is given too.
  expect(tigon("train --steps 2 --config " + file), 0, {"2 steps"});
  expect(tigon("train --epochs 0.001 --data " + kText + " --config " + file), 0,
         {"0.99 M parameters", "steps are 0.001 epochs"});
  // The file of a run is good for its plan.
  expect(tigon("plan --config " + file), 0, {"llama-bytes-1m", "1 × 16 tokens", "bf16"});
}

TEST(Config, PrintedAndReadAgainIsTheSame) {
  const Folder folder;
  const std::string flags[] = {
      "",
      "--sequential --nondeterministic --bytes --no-gemm-ceiling --data " + kText + " --epochs 2 --eval-fraction 0.05",
      "--precision fp16 --loss-scale-power 7 --loss-scale-window 100 --seed 18446744073709551614 --lr 0.001",
      "--lora r=8,targets=q_proj+v_proj --recompute norm1,activation --mlp-tile 0 --chunk 64 --clip .5",
      "--offload all,states=nvme --offload-dir '/tmp/a \"quoted\" folder' --update cpu --order layers --accumulate 2",
  };
  for (const std::string& given : flags) {
    const Outcome first = tigon("train " + given + " --print-config");
    expect(first, 0, {"model = \"llama-bytes-6m\"", "# Memory", "batch = 8"});
    const Outcome again = tigon("train --print-config --config " + write(folder, first.text));
    EXPECT_EQ(first.text, again.text) << given;
  }
  expect(tigon("train --sequential --print-config"), 0, {"\nsequential = true\n", "\n# data\n", "\n# bytes\n"});
  expect(tigon("train --print-config"), 0, {"\n# sequential\n"});
}

TEST(Config, IsKeptWithEachCheckpointAndRepeatsTheRun) {
  const Folder folder;
  const std::string run = kSmall + "--data " + kText + " --steps 3 --output ";
  expect(tigon("train " + run + (folder / "one") + " --checkpoints " + (folder / "kept") + " --save-every 1"), 0, {});
  const std::string kept = (folder / "kept") + "/step-00000003/run.toml";
  ASSERT_TRUE(std::filesystem::exists(kept));
  expect(tigon("train --config " + kept + " --checkpoints " + (folder / "again") + " --output " + (folder / "two")), 0,
         {});
  EXPECT_EQ(bytes_of(folder / "one/model.safetensors"), bytes_of(folder / "two/model.safetensors"));
  // It does not resume by itself, and the run that it is of goes on with it.
  expect(tigon("train --config " + kept + " --steps 5 --resume"), 0, {"5 steps"});
  // One that was changed is a damaged checkpoint.
  const std::string changed = (folder / "kept") + "/step-00000005/run.toml";
  std::ofstream(changed, std::ios::app) << "# by hand\n";
  expect(tigon("train --config " + changed + " --steps 6 --resume 5"), 2, {"run.toml", "checksum"});
}

TEST(Config, SaysWhatIsWrong) {
  const Folder folder;
  const auto refuses = [&](const std::string& text, std::initializer_list<const char*> says) {
    expect(tigon("train --config " + write(folder, text)), 2, says);
  };
  refuses("batch = 1\nbatsh = 2\n", {"run.toml, line 2", "no flag '--batsh'", "Did you mean --batch?"});
  refuses("batch = [1, 2]\n", {"line 1", "'batch' is no plain value"});
  refuses("[memory]\nrecompute = \"block\"\n", {"'memory' is no plain value"});
  refuses("\nbatch = \n", {"line 2", "not TOML"});
  refuses("batch = true\n", {"line 1", "'batch' is not switched on or off"});
  refuses("config = \"other.toml\"\n", {"no flag '--config'"});
  refuses("batch = 0\n", {"--batch"});
  refuses("precision = \"fp7\"\n", {"--precision"});
  refuses("data = \"\"\n", {"empty"});
  refuses(std::string("a = \"\0\"", 7), {"not TOML"});
  expect(tigon("train --config " + (folder / "none.toml")), 1, {"none.toml"});
  expect(tigon("train --config " + (folder / "")), 1, {});
  expect(tigon("train --config"), 2, {"--config"});
}

}  // namespace
}  // namespace tigon::test
