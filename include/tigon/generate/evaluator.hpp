#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "tigon/generate/generator.hpp"
#include "tigon/train/data.hpp"

namespace tigon {

// How well a model foretells a text: each token's loss, given those before it in its row.
class Evaluator {
 public:
  // Rows of `seq` tokens, `batch` of them at a time.
  Evaluator(const ModelConfig& model, const FrozenOptions& options, int64_t batch, int64_t seq);
  ~Evaluator();

  // As Generator's.
  void load_weights(const std::filesystem::path& folder);
  void load_adapters(const std::filesystem::path& folder);

  // Tokens that count and their loss: −ln of their probabilities, added up.
  struct Result {
    int64_t tokens = 0;
    double loss = 0;
    int64_t read = 0;  // tokens of the file so far
    double mean() const { return tokens > 0 ? loss / static_cast<double>(tokens) : 0; }
  };
  // All tokens but the first, which nothing comes before, and those that the file's mask leaves out; the last row may
  // be short. `progress` hears what there is so far after each batch, and ends it where it says no.
  Result evaluate(const TokenFile& file, const std::function<bool(const Result&)>& progress = {});

  FrozenBytes bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tigon
