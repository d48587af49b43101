#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

#include "progress.hpp"
#include "signals.hpp"
#include "tigon/model/model_config.hpp"
#include "tigon/train/tokenize.hpp"

namespace tigon::app {

// How far texts are on their way to tokens, on standard error; a signal ends it.
class TokenizingBar {
 public:
  TokenizingBar(const CatchSignals& signals, const char* what) : signals_(signals), what_(what) {}
  bool operator()(int64_t done, int64_t total);

 private:
  const CatchSignals& signals_;
  const char* what_;
  Progress progress_;
};

// --tokenizer: a folder that has one.
void add_tokenizer(CLI::App& command, std::filesystem::path& folder, const std::string& help);

// --template and --loss-on, for chats.
void add_chat_options(CLI::App& command, TokenizeOptions& options);

// What was made, and what was dropped and why. Error where nothing is left.
void show_tokenized(const TokenizeReport& report, const std::filesystem::path& output);

// The token file of text or JSON lines, as `how` says, which has a folder with a tokenizer.json: made now, or by an
// earlier run from the same. Anything else stays as it is: token files, bytes of a model of bytes, what has no
// tokenizer.
// Returns 0, or what the signal that came makes of it.
int tokenize_data(std::filesystem::path& data, const ModelConfig& model, TokenizeOptions how);

}  // namespace tigon::app
