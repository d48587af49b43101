#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/fields.hpp"
#include "text/pair_table.hpp"

namespace tigon {

// Byte pair encoding: a word begins as its bytes or characters, and again and again the pair of neighbours that stands
// first in the list of merges becomes one token.
class Bpe {
 public:
  Bpe(const Field& model, bool byte_level);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // What encode() needs beside it, one per thread.
  struct Scratch {
    struct Symbol {
      int32_t id;  // negative: part of its neighbour by now
      int32_t previous, next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;
  };
  // Appends the tokens of a piece of text.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  // How many bytes of a piece are a word of their own, in that no token reaches beyond them.
  size_t word_end(std::string_view piece) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  const std::string* id_to_token(int64_t id) const;  // null where there is none
  int64_t tokens() const noexcept { return static_cast<int64_t>(ids_.size()); }
  // One more than the largest id.
  int64_t end() const noexcept { return static_cast<int64_t>(tokens_.size()); }

 private:
  void read_vocabulary(const Field& vocabulary);
  void read_merges(const Field& merges);
  void find_symbols();
  void find_word_beginnings();
  void begin_word(std::string_view piece, Scratch& scratch) const;
  void merge(Scratch& scratch) const;
  std::optional<int32_t> symbol_of(std::string_view character) const;

  // Characters that few others stand before inside of tokens, each with those.
  using Beginnings = std::unordered_map<char32_t, std::vector<char32_t>>;

  bool byte_level_, byte_fallback_, fuse_unknown_, ignore_merges_;
  std::optional<int32_t> unknown_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<const std::string*> tokens_;   // by id, in ids_; null: there is none
  std::array<int32_t, 256> byte_symbols_{};  // of bytes, or of characters of ASCII; negative: there is none
  std::array<int32_t, 256> fallback_{};      // <0x0A>
  bool whole_fallback_ = true;               // there is one for every byte
  bool merges_bytes_ = false;                // some of them are merged
  std::array<bool, 256> may_begin_{};        // by the first byte of a character, whether to look into beginnings_
  Beginnings beginnings_;
  PairTable merges_;
};

}  // namespace tigon
