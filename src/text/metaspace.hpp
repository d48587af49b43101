#pragma once

#include <string>

#include "text/fields.hpp"

namespace tigon {

// SentencePiece's custom, as the pre-tokenizer and the decoder of this name have it: a character in the place of
// spaces, and whether there is one before a text that begins with none.
struct MetaspaceSettings {
  enum class Prepend { never, first, always };

  explicit MetaspaceSettings(const Field& field);

  std::string replacement;
  Prepend prepend;
  bool split;
};

}  // namespace tigon
