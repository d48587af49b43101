#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "model_flags.hpp"
#include "tigon/train/run.hpp"
#include "tigon/train/tokenize.hpp"

namespace tigon::app {

// The flags of tigon train.
struct TrainFlags {
  ModelFlags model;
  int64_t print_every = 1;
  bool ceiling = true;
  bool print_config = false;  // instead of a run
  TokenizeOptions words{};    // of text in --data; with no tokenizer that of the model's folder
  std::string prompt;         // for --sample-every; empty: a new line
  int64_t sample_tokens = 64;
  int64_t cap_bytes = 0;  // of the device's memory; 0: all of it

  void add_to(CLI::App& command);
  RunOptions run_options() const;

 private:
  void add_data(CLI::App& command);
  void add_training(CLI::App& command);
  void add_results(CLI::App& command);

  RunOptions run_;
};

}  // namespace tigon::app
