#include "model_text.hpp"

#include "tigon/core/error.hpp"

namespace tigon::app {

ModelText::ModelText(const ModelConfig& model) {
  if (model.vocab == 256) return;
  throw Error(ErrorCode::invalid_argument, {.where = "text",
                                            .what = "this model's tokens are not bytes",
                                            .expected = "a vocabulary of 256",
                                            .got = std::to_string(model.vocab)});
}

std::vector<int32_t> ModelText::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string ModelText::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) text.push_back(static_cast<char>(token));
  return text;
}

}  // namespace tigon::app
