#pragma once

#include <map>
#include <string>
#include <vector>

#include "gpu/gpu_fixture.hpp"
#include "tigon/storage/files.hpp"
#include "train/small_model.hpp"

// Small runs of the trainer on a GPU.
namespace tigon::test {

inline const std::map<std::string, std::string> kSettings = {};

// Sizes that GPU kernels like, and two layers.
inline ModelConfig gpu_model() {
  ModelConfig model = small_model();
  model.vocab = 512;
  model.hidden = 128;
  model.intermediate = 256;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 32;
  model.max_position = 128;
  return model;
}

inline TrainConfig gpu_run(const char* precision) {
  TrainConfig train = small_run();
  train.device = kGpu;
  train.batch = 2;
  train.seq = 64;
  train.precision = precision_from_string(precision);
  train.optimizer.lr = 1e-3;
  return train;
}

// Losses of some steps, submitted as far ahead as the trainer allows.
inline std::vector<double> losses(Trainer& trainer, int64_t first, int64_t last) {
  std::vector<double> list;
  for (int64_t step = first; step < last; ++step) {
    trainer.submit(small_batch(trainer.model(), trainer.config(), step));
    while (trainer.pending() >= trainer.most_pending()) list.push_back(trainer.collect().loss);
  }
  while (trainer.pending() > 0) list.push_back(trainer.collect().loss);
  return list;
}

inline std::string state_of(const Trainer& trainer) {
  const TemporaryFolder folder;
  trainer.save_checkpoint(folder / "state", kSettings);
  return read_text_file(folder / "state" / "model.safetensors", 1 << 28) +
         read_text_file(folder / "state" / "state.safetensors", 1 << 28);
}

}  // namespace tigon::test
