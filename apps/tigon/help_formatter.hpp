#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tigon::app {

// Help in words: "--batch N   Sequences per micro-batch (default 8)", wrapped, instead of types and ranges.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace tigon::app
