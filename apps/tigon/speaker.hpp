#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model_text.hpp"
#include "tigon/train/trainer.hpp"

namespace tigon::app {

// What train --sample-every shows: a text that the model goes on with as it is now.
class Speaker {
 public:
  // At most `tokens` behind the prompt (empty: a new line), as far as the model has room. `folder`: with the
  // tokenizer, and what may say how a text ends; or empty.
  Speaker(const ModelConfig& model, const std::filesystem::path& folder, const std::string& prompt, int64_t tokens);

  int64_t most_tokens() const;  // of prompt and answer: TrainConfig::speaks
  // Each time with the same chance, so that two texts differ by what was learnt in between.
  std::string speak(Trainer& trainer) const;

 private:
  ModelText words_;
  std::vector<int32_t> prompt_, ends_;
  int64_t tokens_;
};

}  // namespace tigon::app
