#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tigon::app {

// Refuses a command or a flag that there is not, and names the nearest one. CLI11 alone would only say that a
// subcommand is required, or that an argument was not expected.
void refuse_unknown_words(const CLI::App& app, const std::vector<std::string>& words);

// One flag that a command does not have, "--name".
[[noreturn]] void refuse_unknown_flag(const CLI::App& command, const std::string& where, const std::string& flag);

}  // namespace tigon::app
