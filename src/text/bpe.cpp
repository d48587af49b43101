#include "text/bpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "text/byte_level.hpp"
#include "text/utf8.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 22;  // ids are an index: a file may not make it any larger
constexpr int32_t kGone = -1;
constexpr size_t kFewBefore = 16;

// "a b" or ["a", "b"]
std::pair<std::string_view, std::string_view> pair_of(const Json& merge, const std::string& where, size_t index) {
  const auto refuse = [&](const char* what) {
    Field{merge, fmt::format("{}[{}]", where, index)}.refuse(what, "two tokens", merge.dump(false));
  };
  if (merge.is_array()) {
    const Json::Array& both = merge.array(where);
    if (both.size() != 2) refuse("this merge has not two parts");
    return {both[0].string(where), both[1].string(where)};
  }
  const std::string_view text = merge.string(where);
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    refuse("this merge has not two parts");
  return {text.substr(0, space), text.substr(space + 1)};
}

void refuse_affix(const Field& model, const char* key) {
  if (model.has(key) && !model[key].string().empty()) model[key].refuse("this is not known of BPE here", "none");
}

}  // namespace

Bpe::Bpe(const Field& model, bool byte_level)
    : byte_level_(byte_level),
      byte_fallback_(model.boolean_or("byte_fallback", false)),
      fuse_unknown_(model.boolean_or("fuse_unk", false)),
      ignore_merges_(model.boolean_or("ignore_merges", false)) {
  // The oldest files name no type.
  if (model.has("type") && model.type() != "BPE") model.refuse("this model is not known", "BPE", model.type());
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  refuse_affix(model, "continuing_subword_prefix");
  refuse_affix(model, "end_of_word_suffix");
  if (model.has("dropout") && model["dropout"].json.number(model.where) != 0)
    model["dropout"].refuse("tokens by chance are not known here", "none");
  if (byte_level && byte_fallback_) model["byte_fallback"].refuse("bytes have no bytes to fall back on");
  read_vocabulary(model["vocab"]);
  find_symbols();
  read_merges(model["merges"]);
  if (model.has("unk_token")) {
    unknown_ = token_to_id(model["unk_token"].string());
    if (!unknown_) model["unk_token"].refuse("the vocabulary has no such token", {}, model["unk_token"].string());
  }
  find_word_beginnings();
}

void Bpe::read_vocabulary(const Field& vocabulary) {
  const Json::Object& tokens = vocabulary.json.object(vocabulary.where);
  ids_.reserve(tokens.size());
  for (const auto& [token, value] : tokens) {
    const Field field{value, vocabulary.where + ", " + token};
    const auto id = static_cast<size_t>(field.integer(0, kMostTokens - 1));
    if (id >= tokens_.size()) tokens_.resize(id + 1);
    if (tokens_[id]) field.refuse("two tokens have this id", {}, std::to_string(id));
    tokens_[id] = &ids_.emplace(token, static_cast<int32_t>(id)).first->first;
  }
}

void Bpe::read_merges(const Field& merges) {
  const Json::Array& list = merges.json.array(merges.where);
  merges_.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const auto [left, right] = pair_of(list[i], merges.where, i);
    const std::string whole = std::string(left) += right;
    const auto id_of = [&](std::string_view token) {
      const std::optional<int32_t> id = token_to_id(token);
      if (!id) {
        Field{list[i], fmt::format("{}[{}]", merges.where, i)}.refuse("the vocabulary has no such token", {},
                                                                      std::string(token));
      }
      return *id;
    };
    const std::array<int32_t, 2> both{id_of(left), id_of(right)};
    for (const int32_t id : both) {
      merges_bytes_ = merges_bytes_ || std::find(fallback_.begin(), fallback_.end(), id) != fallback_.end();
    }
    merges_.set(both[0], both[1], {.rank = static_cast<uint32_t>(i), .id = id_of(whole)});
  }
}

void Bpe::find_symbols() {
  for (int i = 0; i < 256; ++i) {
    const auto at = static_cast<size_t>(i);
    const std::string byte(1, static_cast<char>(i));
    const bool known = byte_level_ || i < 128;
    byte_symbols_[at] = known ? token_to_id(byte_level_ ? to_byte_characters(byte) : byte).value_or(-1) : -1;
    fallback_[at] = byte_fallback_ ? token_to_id(fmt::format("<0x{:02X}>", i)).value_or(-1) : -1;
    whole_fallback_ = whole_fallback_ && fallback_[at] >= 0;
  }
}

// A text without pre-tokenizer is one long word, of which nothing would be found again. But where two characters stand
// side by side in no token, no merge can ever cross, so that it may be cut there. Only characters that few others stand
// before are looked at, since the test comes with each of them: ▁, first of all.
void Bpe::find_word_beginnings() {
  // Without bytes to fall back on, unknown characters are dropped or joined, and others become neighbours.
  if (byte_level_ || !whole_fallback_ || merges_bytes_) return;
  std::unordered_map<char32_t, std::set<char32_t>> before;
  for (const std::string* token : tokens_) {
    if (token == nullptr) continue;
    char32_t last = 0;
    for (size_t at = 0; at < token->size();) {
      const Utf8Step step = utf8_step(*token, at);
      std::set<char32_t>& others = before[step.code];
      if (at > 0 && others.size() <= kFewBefore) others.insert(last);
      last = step.code;
      at += step.length;
    }
  }
  for (const auto& [character, others] : before) {
    if (others.size() > kFewBefore) continue;
    beginnings_[character].assign(others.begin(), others.end());
    std::string text;
    append_utf8(text, character);
    may_begin_[static_cast<unsigned char>(text[0])] = true;
  }
}

size_t Bpe::word_end(std::string_view piece) const {
  if (beginnings_.empty()) return piece.size();
  size_t last = 0;
  for (size_t at = utf8_length(piece[0]); at < piece.size(); at += utf8_length(piece[at])) {
    if (may_begin_[static_cast<unsigned char>(piece[at])]) {
      const auto found = beginnings_.find(utf8_step(piece, at).code);
      if (found != beginnings_.end()) {
        const std::vector<char32_t>& others = found->second;
        if (std::find(others.begin(), others.end(), utf8_step(piece, last).code) == others.end()) return at;
      }
    }
    last = at;
  }
  return piece.size();
}

std::optional<int32_t> Bpe::token_to_id(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Bpe::id_to_token(int64_t id) const {
  return id < 0 || id >= end() ? nullptr : tokens_[static_cast<size_t>(id)];
}

std::optional<int32_t> Bpe::symbol_of(std::string_view character) const {
  if (character.size() > 1) return token_to_id(character);
  const int32_t id = byte_symbols_[static_cast<unsigned char>(character[0])];
  return id < 0 ? std::nullopt : std::optional(id);
}

void Bpe::begin_word(std::string_view piece, Scratch& scratch) const {
  scratch.symbols.clear();
  const auto add = [&](int32_t id) {
    const auto at = static_cast<int32_t>(scratch.symbols.size());
    scratch.symbols.push_back({.id = id, .previous = at - 1, .next = at + 1});
  };
  bool unknown = false;  // one is yet to be added
  for (size_t at = 0; at < piece.size();) {
    const std::string_view character = piece.substr(at, byte_level_ ? 1 : utf8_length(piece[at]));
    at += character.size();
    if (const std::optional<int32_t> id = symbol_of(character)) {
      if (unknown) add(*unknown_);
      unknown = false;
      add(*id);
      continue;
    }
    const auto byte_token = [&](char byte) { return fallback_[static_cast<unsigned char>(byte)]; };
    if (std::all_of(character.begin(), character.end(), [&](char byte) { return byte_token(byte) >= 0; })) {
      for (const char byte : character) add(byte_token(byte));
    } else if (unknown_) {
      if (unknown && !fuse_unknown_) add(*unknown_);
      unknown = true;
    }
  }
  if (unknown) add(*unknown_);
  if (!scratch.symbols.empty()) scratch.symbols.back().next = -1;
}

// By a heap of (rank, place), so that a word of a million characters takes not the square of that. What became of a
// pair meanwhile shows when its turn comes.
void Bpe::merge(Scratch& scratch) const {
  auto& [symbols, queue] = scratch;
  queue.clear();
  const auto key_of = [&](int32_t at) -> std::optional<uint64_t> {
    const int32_t next = symbols[static_cast<size_t>(at)].next;
    if (next < 0) return std::nullopt;
    const PairTable::Merge* merge =
        merges_.find(symbols[static_cast<size_t>(at)].id, symbols[static_cast<size_t>(next)].id);
    if (merge == nullptr) return std::nullopt;
    return uint64_t{merge->rank} << 32 | static_cast<uint32_t>(at);
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (const auto key = key_of(static_cast<int32_t>(i))) queue.push_back(*key);
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto push = [&](int32_t at) {
    if (at < 0) return;
    if (const auto key = key_of(at)) {
      queue.push_back(*key);
      std::push_heap(queue.begin(), queue.end(), std::greater<>());
    }
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t key = queue.back();
    queue.pop_back();
    const auto at = static_cast<int32_t>(key & 0xFFFFFFFFu);
    auto& left = symbols[static_cast<size_t>(at)];
    if (left.id == kGone || key_of(at) != key) continue;
    auto& right = symbols[static_cast<size_t>(left.next)];
    left.id = merges_.find(left.id, right.id)->id;
    right.id = kGone;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = at;
    push(left.previous);
    push(at);
  }
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto id = byte_level_ ? token_to_id(to_byte_characters(piece)) : token_to_id(piece)) {
      ids.push_back(*id);
      return;
    }
  }
  check_text_length(piece.size());  // symbols count in 32 bits
  begin_word(piece, scratch);
  merge(scratch);
  for (const Scratch::Symbol& symbol : scratch.symbols) {
    if (symbol.id != kGone) ids.push_back(symbol.id);
  }
}

}  // namespace tigon
