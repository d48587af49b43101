#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "tigon/generate/generator.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/train/planner.hpp"
#include "train/device_block.hpp"
#include "train/residents.hpp"
#include "train/weight_source.hpp"

namespace tigon {

// The configuration whose device, threads, precision, adapters and base are those of the options.
TrainConfig frozen_config(const FrozenOptions& options);

// A model that is read and not trained: its weights, and what else stays beside them, in one block of memory.
class FrozenModel {
 public:
  // What stays beside the weights: called once to measure and once to take.
  using Beside = std::function<std::vector<OwnedTensor>(const Context&)>;

  // Of `train` the device, threads, precision, adapters, base and sizes count.
  FrozenModel(const ModelConfig& model, const TrainConfig& train, const Beside& beside);

  void load_weights(const std::filesystem::path& folder);
  void load_adapters(const std::filesystem::path& folder);

  // Measures a pass and runs it in memory that is taken for it, unless it is the one that ran last. Throws where no
  // weights were loaded.
  void run(const std::function<void(const Context&)>& pass, bool as_before = false);

  const ModelConfig& model() const noexcept { return model_; }
  const TrainConfig& train() const noexcept { return train_; }
  const ParameterList& parameters() const noexcept { return parameters_; }
  const Residents& residents() const noexcept { return residents_; }
  const std::vector<OwnedTensor>& beside() const noexcept { return beside_; }
  WeightSource& weights() noexcept { return *weights_; }
  FrozenBytes bytes() const noexcept { return bytes_; }
  // For copies to and from the host.
  Context transfers() const { return {.device = train_.device, .threads = train_.threads}; }

 private:
  // A sequence of ops with memory of its own.
  struct Pass {
    Sequence sequence;
    DeviceBlock memory;
    ReplayArena arena;
    Pass(Sequence&& measured, Device device);
  };
  Context in(MemorySource& memory) const {
    return {.device = train_.device, .threads = train_.threads, .memory = &memory};
  }
  Sequence measured(const Beside& beside);

  ModelConfig model_;
  TrainConfig train_;
  ParameterList parameters_;
  FrozenBytes bytes_;
  Sequence stays_;
  Disk disk_;  // holds nothing
  DeviceBlock memory_;
  ReplayArena arena_;
  Residents residents_;
  std::vector<OwnedTensor> beside_;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<Pass> pass_;
  bool has_weights_ = false, has_adapters_ = false;
};

}  // namespace tigon
