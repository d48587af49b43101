#pragma once

#include <CLI/CLI.hpp>

namespace tigon::app {

// Refuses a command or a flag that there is not, and names the nearest one. CLI11 alone would only say that a
// subcommand is required, or that an argument was not expected.
void refuse_unknown_words(CLI::App& app, int words, char** word);

}  // namespace tigon::app
