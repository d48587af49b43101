#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/model/model_config.hpp"

namespace tigon::app {

// Between text and a model's tokens: a token per byte, where the vocabulary is 256.
class ModelText {
 public:
  explicit ModelText(const ModelConfig& model);

  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const int32_t> tokens) const;
};

}  // namespace tigon::app
