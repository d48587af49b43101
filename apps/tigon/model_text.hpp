#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/model/model_config.hpp"
#include "tigon/text/tokenizer.hpp"

namespace tigon::app {

// Between text and a model's tokens: by the tokenizer.json of its folder, or, where there is none and the vocabulary is
// 256, byte by byte.
class ModelText {
 public:
  ModelText(const ModelConfig& model, const std::filesystem::path& folder);

  std::vector<int32_t> encode(std::string_view text, bool special = true) const;  // with <s> and the like
  std::string decode(std::span<const int32_t> tokens) const;                      // special tokens left out

  // The token that this text is as a whole.
  std::optional<int32_t> token(std::string_view text) const;

  // What comes behind a prompt, token by token.
  class Behind {
   public:
    Behind(const ModelText& text, std::span<const int32_t> prompt);
    std::string push(int32_t token);
    std::string finish();  // of a character that did not become whole

   private:
    std::optional<StreamDecoder> decoder_;  // else bytes
  };

 private:
  std::optional<Tokenizer> tokenizer_;  // else bytes
};

}  // namespace tigon::app
