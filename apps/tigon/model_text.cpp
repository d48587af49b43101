#include "model_text.hpp"

#include "tigon/core/error.hpp"

namespace tigon::app {

ModelText::ModelText(const ModelConfig& model, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.json";
  if (!folder.empty() && std::filesystem::exists(file)) {
    tokenizer_ = Tokenizer::load(file);
    if (tokenizer_->vocab() <= model.vocab) return;
    throw Error(ErrorCode::invalid_argument, {.where = file.string(),
                                              .what = "this tokenizer is not the model's: it has more tokens",
                                              .expected = "at most " + std::to_string(model.vocab),
                                              .got = std::to_string(tokenizer_->vocab())});
  }
  if (model.vocab == 256) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = folder.empty() ? "text" : folder.string(),
               .what = "there is no tokenizer.json, and this model's tokens are not bytes",
               .expected = "a vocabulary of 256",
               .got = std::to_string(model.vocab),
               .fix = "Name the folder that has it with --tokenizer, or copy it into the model's."});
}

std::vector<int32_t> ModelText::encode(std::string_view text, bool special) const {
  if (tokenizer_) return tokenizer_->encode(text, special);
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string ModelText::decode(std::span<const int32_t> tokens) const {
  if (tokenizer_) return tokenizer_->decode(tokens, true);
  std::string text;
  for (const int32_t token : tokens) text.push_back(static_cast<char>(token));
  return text;
}

std::optional<int32_t> ModelText::token(std::string_view text) const {
  return tokenizer_ ? tokenizer_->token_to_id(text) : std::nullopt;
}

// A tokenizer may treat the beginning of a text in a way of its own, so it sees the prompt too.
ModelText::Behind::Behind(const ModelText& text, std::span<const int32_t> prompt) {
  if (!text.tokenizer_) return;
  decoder_.emplace(*text.tokenizer_, true);
  for (const int32_t token : prompt) (void)decoder_->push(token);
}

std::string ModelText::Behind::push(int32_t token) {
  return decoder_ ? decoder_->push(token) : std::string(1, static_cast<char>(token));
}

std::string ModelText::Behind::finish() { return decoder_ ? decoder_->finish() : ""; }

}  // namespace tigon::app
