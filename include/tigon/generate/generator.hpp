#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "tigon/train/train_config.hpp"

namespace tigon {

// How a model is held that is read and not trained.
struct FrozenOptions {
  Device device{};
  int threads = 0;  // of the CPU; 0: all. Results do not depend on it
  Precision precision{};
  LoraConfig lora{};  // of adapters beside it
  BaseFormat base{};  // nf4: of a folder that is stored so
};

// The types that a folder's weights are stored in.
Precision stored_precision(const std::filesystem::path& folder);
BaseFormat stored_base(const std::filesystem::path& folder);

// The bytes of a model that is read, all planned before they are taken.
struct FrozenBytes {
  int64_t weights = 0;
  int64_t cache = 0;      // keys and values
  int64_t transient = 0;  // the most that a pass has needed so far
  int64_t all() const { return weights + cache + transient; }
};

// Continues sequences of tokens. What attention needs of earlier tokens is kept in a cache, so that each new token
// costs one pass of one token.
class Generator {
 public:
  // Room for `batch` sequences of at most `context` tokens, prompts included.
  Generator(const ModelConfig& model, const FrozenOptions& options, int64_t batch, int64_t context);
  ~Generator();

  // From a Hugging Face folder, such as `tigon train --output` writes and a checkpoint is; then adapters of PEFT where
  // the options name some. Files that do not fit are an Error before anything is changed.
  void load_weights(const std::filesystem::path& folder);
  void load_adapters(const std::filesystem::path& folder);

  // Forgets what was there and reads one prompt for each sequence, of at least one token. Returns the logits of the
  // token after each, [batch, vocab], which stay until the next call.
  std::span<const float> read(const std::vector<std::vector<int32_t>>& prompts);
  // One more token of each sequence.
  std::span<const float> add(std::span<const int32_t> tokens);

  const ModelConfig& model() const noexcept;
  int64_t batch() const noexcept;
  int64_t context() const noexcept;
  FrozenBytes bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tigon
