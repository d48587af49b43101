#pragma once

#include "text/added_tokens.hpp"
#include "text/bpe.hpp"
#include "text/decoder.hpp"
#include "text/normalizer.hpp"
#include "text/post_processor.hpp"
#include "text/pre_tokenizer.hpp"

namespace tigon {

// A tokenizer.json, read. In the order of the way from text to ids.
struct TokenizerParts {
  explicit TokenizerParts(const Field& file);

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;

  const std::string* id_to_token(int32_t id) const;
  // Whether something is put before each text, so that a part of one has other ids than in the whole.
  bool begins_each() const { return normalizer.prepends() || pre_tokenizer.prepends(); }
};

}  // namespace tigon
