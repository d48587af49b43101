#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <string>

#include "tigon/train/planner.hpp"

namespace tigon::app {

// What plan and train share: the model, the shape of a step, and where its bytes go.
struct ModelFlags {
  std::string model = "llama-bytes-6m";
  TrainConfig train;               // every flag of a step is bound to it
  std::filesystem::path adapters;  // a folder of PEFT; empty: new ones, or none

  void add_to(CLI::App& command);
  // The folder where the model is one, else empty.
  std::filesystem::path folder() const;
  ModelConfig model_config() const;
};

// A flag whose word `read` puts where it belongs. `shown` is the default in the help.
CLI::Option* add_word(CLI::App& command, const std::string& name, const std::string& help, const std::string& shown,
                      const std::function<void(const std::string&)>& read);

// ", offload all, by layers", as far as it is not the usual.
std::string homes_text(const TrainConfig& train);
// The plan as a table by class.
std::string plan_table(const MemoryPlan& plan);

}  // namespace tigon::app
