#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "tigon/train/planner.hpp"

namespace tigon::app {

// What plan and train share: the model, the shape of a step, and where its bytes go.
struct ModelFlags {
  std::string model = "llama-bytes-6m";
  std::string device = "cpu";
  std::string precision = "fp32";
  std::string recompute = "none";
  std::string fused = "all";
  int64_t batch = 8, seq = 256, accumulate = 1;
  int64_t mlp_tile = 0, chunk = 0;
  bool lean_loss = false, liger_chunk = false, update_early = false, nondeterministic = false;
  double clip = 1.0;
  int threads = 0;

  void add_to(CLI::App& command);
  TrainConfig train_config() const;
  // The folder where the model is one, else empty.
  std::filesystem::path folder() const;
  ModelConfig model_config() const;
};

// "24GiB", "24 gib", "24G", which is the same, "512MB", "1000000".
int64_t bytes_from_string(const std::string& text);

// The plan as a table by class.
std::string plan_table(const MemoryPlan& plan);

}  // namespace tigon::app
