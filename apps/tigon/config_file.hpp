#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tigon::app {

// The flag --config of a command.
void add_config_flag(CLI::App& command);

// The words of a command line with those of its --config file in front of its flags. What the line itself gives stays
// out, and so does what excludes it: flags win.
std::vector<std::string> with_config(const CLI::App& app, std::vector<std::string> words);

// All flags of a command that was parsed, as a file for --config.
std::string config_text(const CLI::App& command);

}  // namespace tigon::app
