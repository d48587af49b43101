#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>

// The program under test, run to its end.
namespace tigon::test {

struct Outcome {
  int code;
  std::string text;  // standard output and standard error together
};

inline Outcome tigon(const std::string& arguments, const std::string& program = TIGON_PROGRAM,
                     const std::string& errors_to = "&1") {
  FILE* pipe = popen((program + " " + arguments + " 2>" + errors_to).c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer{};
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
  return {WEXITSTATUS(pclose(pipe)), text};
}

// Standard output alone, of a run that has to succeed.
inline std::string output_of(const std::string& arguments) {
  const Outcome outcome = tigon(arguments, TIGON_PROGRAM, "/dev/null");
  EXPECT_EQ(outcome.code, 0) << arguments;
  return outcome.text;
}

inline void expect(const Outcome& outcome, int code, std::initializer_list<const char*> texts) {
  EXPECT_EQ(outcome.code, code) << outcome.text;
  for (const char* text : texts)
    EXPECT_NE(outcome.text.find(text), std::string::npos) << "lacks " << text << ":\n" << outcome.text;
}

// A text for models whose tokens are bytes.
inline const std::string kText = TIGON_SOURCE_DIR "/data/austen.txt";

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tigon-cli-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace tigon::test
