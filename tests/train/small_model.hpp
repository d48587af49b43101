#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "tigon/model/model_config.hpp"
#include "tigon/train/trainer.hpp"

namespace tigon::test {

// Two layers with odd sizes, small enough for hundreds of runs.
inline ModelConfig small_model() {
  return {.vocab = 61,
          .hidden = 24,
          .intermediate = 40,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 8,
          .max_position = 64,
          .initializer_range = 0.1};
}

inline ModelConfig small_qwen3() {
  ModelConfig model = small_model();
  model.family = Family::qwen3;
  model.qk_norm = true;
  model.tied_embeddings = true;
  return model;
}

inline TrainConfig small_run() {
  TrainConfig train;
  train.threads = 1;  // too small to share
  train.batch = 2;
  train.seq = 9;
  train.steps = 20;
  train.optimizer.lr = 1e-2;
  train.memory.disk.folder = std::filesystem::temp_directory_path();
  train.memory.disk.file.direct = false;  // a disk takes its time for what is so small
  return train;
}

// Random tokens for a step, each seventh label left out. Where documents are apart, they are of four tokens.
inline std::vector<TokenBatch> small_batch(const ModelConfig& model, const TrainConfig& train, int64_t step) {
  std::vector<TokenBatch> micros(static_cast<size_t>(train.accumulate));
  Sampler sampler({}, {.seq = train.seq, .vocab = model.vocab, .seed = 5});
  for (int64_t i = 0; i < train.accumulate; ++i) {
    TokenBatch& micro = micros[static_cast<size_t>(i)];
    sampler.fill((step * train.accumulate + i) * train.batch, train.batch, micro);
    for (size_t t = 0; t < micro.labels.size(); t += 7) {
      micro.labels[t] = -100;
      --micro.counted;
    }
    for (int64_t t = 0; train.documents_apart && t < train.tokens(); ++t)
      micro.starts.push_back(static_cast<int32_t>(t % train.seq / 4 * 4));
  }
  return micros;
}

// For what hundreds of runs write: a checkpoint waits until it is on the disk.
inline std::filesystem::path folder_in_memory() {
  const std::filesystem::path shared = "/dev/shm";
  return access(shared.c_str(), W_OK) == 0 ? shared : std::filesystem::temp_directory_path();
}

// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& where = std::filesystem::temp_directory_path()) {
    std::string pattern = (where / "tigon-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace tigon::test
