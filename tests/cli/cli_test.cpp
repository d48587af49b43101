// The program as a person meets it: what it prints and what it returns.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "cli/program.hpp"

namespace tigon::test {
namespace {

TEST(Cli, HelpTeaches) {
  expect(tigon("--help"), 0, {"LLM training in little memory", "bench", "Start with:"});
  expect(tigon("bench ops --help"), 0, {"--shapes", "--dtype", "--json", "--memory", "TOKENSxHIDDEN", "Example:"});
  expect(tigon("--version"), 0, {"tigon " TIGON_VERSION});
}

TEST(Cli, BadInputIsAnsweredWithWhatWasExpected) {
  expect(tigon(""), 2, {"a command is missing", "train, plan, ", "bench, help"});
  expect(tigon("trian"), 2, {"no command 'trian'", "bench", "See tigon --help."});
  expect(tigon("bench op"), 2, {"no command 'op'", "ops", "See tigon bench --help."});
  expect(tigon("bench ops --ops rmsnorn"), 2, {"no such op", "rmsnorm", "'rmsnorn'"});
  expect(tigon("bench ops --ops rmsnorm --shapes 12"), 2, {"TOKENSxHIDDEN", "'12'"});
  expect(tigon("bench ops --ops rmsnorm --shapes 0x4"), 2, {"TOKENSxHIDDEN"});
  expect(tigon("bench ops --ops rmsnorm --shapes 4x99999999999999999999"), 2, {"TOKENSxHIDDEN"});
  expect(tigon("bench ops --ops rmsnorm --shapes 4000000000x4000000000"), 2, {"overflows"});
  expect(tigon("bench ops --ops swiglu --shapes 1000000x4000000"), 3, {"too large for the memory", "smaller shape"});
  expect(tigon("bench ops --dtype f8"), 2, {"f8", "bf16"});
  expect(tigon("bench ops --device tpu"), 2, {"cpu, cuda or cuda:N"});
  expect(tigon("bench ops --repeats 0"), 2, {"--repeats"});
  expect(tigon("bench ops --ops rmsnorm --json /nonexistent/x.json"), 1, {"cannot be written"});
  expect(tigon("bench ops --ops rmsnorm --json /tmp"), 2, {"/tmp", "not a plain file"});
}

TEST(Cli, BenchPrintsATableAndWritesRows) {
  const std::string file = testing::TempDir() + "tigon_rows.json";
  const Outcome outcome =
      tigon("bench ops --ops rmsnorm --shapes 64x128 --dtype f32,bf16 --repeats 3 --memory --json " + file);
  expect(outcome, 0, {"rmsnorm", "64x128", "bf16", "unfused", "of limit", "through_norm", "rows written"});
  std::ifstream stream(file);
  const std::string json((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_EQ(json.front(), '[');
  for (const char* key : {"op", "shape", "dtype", "device", "provider", "fwd_ms", "bwd_ms", "full_ms", "q20_ms",
                          "q80_ms", "peak_bytes", "floor_ms"}) {
    EXPECT_NE(json.find("\"" + std::string(key) + "\": "), std::string::npos) << key;
  }
  size_t rows = 0;
  for (size_t at = json.find("\"op\""); at != std::string::npos; at = json.find("\"op\"", at + 1)) ++rows;
  EXPECT_EQ(rows, 4u);
  std::filesystem::remove(file);
}

TEST(Cli, FusedLossTakesAFractionOfTheUnfusedMemory) {
  const std::string file = testing::TempDir() + "tigon_peaks.json";
  expect(tigon("bench ops --ops fused_linear_cross_entropy --shapes 4096x16x4096 --repeats 1 --json " + file), 0,
         {"fused"});
  std::ifstream stream(file);
  std::map<std::string, long> peaks;
  const auto after = [](const std::string& line, const std::string& key) {
    return line.substr(line.find(key) + key.size());
  };
  for (std::string line; std::getline(stream, line);) {
    if (line.find("provider") == std::string::npos) continue;
    const std::string provider = after(line, "\"provider\": \"");
    peaks[provider.substr(0, provider.find('"'))] = std::stol(after(line, "\"peak_bytes\": "));
  }
  ASSERT_EQ(peaks.size(), 2u);
  // Two arrays of 4096·4096 f32 logits against chunks of the default budget.
  EXPECT_GT(peaks["tigon-unfused"], 2 * 64l << 20);
  EXPECT_LT(peaks["tigon"], peaks["tigon-unfused"] * 3 / 5);
  std::filesystem::remove(file);
}

// It looks for the CUDA backend beside itself, not beside the link; scripts/build makes one.
TEST(Cli, ALinkIsAsGoodAsTheProgram) {
  const std::filesystem::path folder = testing::TempDir() + "tigon_link", link = folder / "tigon_link";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(TIGON_PROGRAM, link);
  std::ofstream(folder / "libtigon_cuda.so") << "what it must not open";
  const std::string arguments = "plan --model llama-bytes-1m --device cuda";
  const Outcome direct = tigon(arguments);
  expect(direct, 0, {"cuda"});
  EXPECT_EQ(tigon(arguments, link.string()).text, direct.text);
  EXPECT_EQ(tigon(arguments, "cd " + folder.string() + " && PATH=. tigon_link").text, direct.text);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tigon::test
