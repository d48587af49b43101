#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

namespace tigon {

// How a program ended.
struct Ended {
  int code = -1;         // its exit code; negative: it was killed
  int signal = 0;        // by this one
  bool stopped = false;  // because `stop` was set
};

// Runs a program to its end with its output in a file, and nothing to read. Where `stop` is set meanwhile it is asked
// to end, by SIGTERM, and waited for. Where the thread that calls this ends, so does the program.
Ended run_program(const std::filesystem::path& program, const std::vector<std::string>& words,
                  const std::filesystem::path& output, const std::atomic<bool>& stop);

// This program's own file.
std::filesystem::path this_program();

}  // namespace tigon
