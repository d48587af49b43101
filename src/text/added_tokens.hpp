#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/bpe.hpp"
#include "text/normalizer.hpp"

namespace tigon {

// A part of a text: a token that was found as it stands in it, or what is between.
struct Section {
  size_t begin, end;
  int32_t id = -1;  // negative: text
};

// Tokens that a text is searched for before anything else is done with it: <|im_end|>, say.
class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(const Field& list, const Bpe& model, const Normalizer& normalizer);

  // A text in order. Some tokens are looked for in the text as it is, others once it is normalized.
  void find(std::string_view text, bool normalized, std::vector<Section>& sections) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  const std::string* id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  int64_t end() const noexcept { return end_; }  // one more than the largest id

 private:
  struct Token {
    std::string text;  // normalized where that is what is looked for: decoding gives it, too
    int32_t id = 0;
    bool single_word = false, lstrip = false, rstrip = false, special = false;
  };
  // What is looked for, as a tree of bytes.
  struct Tree {
    std::unordered_map<uint64_t, uint32_t> next;  // (node, byte) to node
    std::vector<int32_t> token{-1};               // of each node: which one ends there
    std::array<bool, 256> begins{};

    void add(std::string_view text, int32_t token);
    // The longest that begins at `at`: its length and its token; 0 where there is none.
    std::pair<size_t, int32_t> longest(std::string_view text, size_t at) const;
  };
  void add(const Field& field, const Bpe& model, const Normalizer& normalizer);
  std::optional<Section> found(std::string_view text, size_t at, size_t length, const Token& token, size_t done) const;

  std::vector<Token> tokens_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  Tree plain_, normalized_;
  int64_t end_ = 0;
};

}  // namespace tigon
