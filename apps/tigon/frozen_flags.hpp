#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "tigon/generate/generator.hpp"

namespace tigon::app {

// What sample and eval share: which model is read, and where it is computed.
struct FrozenFlags {
  std::filesystem::path model;     // a folder
  std::filesystem::path adapters;  // of PEFT; empty: none
  std::string precision;           // empty: as the weights are stored
  FrozenOptions options{};

  void add_to(CLI::App& command);
  ModelConfig model_config() const;
  // The options with what the files say.
  FrozenOptions settled() const;

  template <class Model>
  void load_into(Model& to) const {
    to.load_weights(model);
    if (!adapters.empty()) to.load_adapters(adapters);
  }
};

}  // namespace tigon::app
