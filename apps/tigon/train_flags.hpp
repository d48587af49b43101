#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "model_flags.hpp"
#include "tigon/train/run.hpp"

namespace tigon::app {

// The flags of tigon train.
struct TrainFlags {
  ModelFlags model;
  int64_t print_every = 1;
  bool ceiling = true;

  void add_to(CLI::App& command);
  TrainConfig train_config() const;
  RunOptions run_options() const;

 private:
  void add_data(CLI::App& command);
  void add_training(CLI::App& command);
  void add_results(CLI::App& command);

  RunOptions run_;
  TrainConfig train_;
  std::string schedule_ = "cosine";
  double loss_scale_power_ = 16;
  int64_t loss_scale_window_ = 1000, loss_scale_hysteresis_ = 1;
  bool sequential_ = false;
};

}  // namespace tigon::app
