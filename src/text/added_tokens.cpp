#include "text/added_tokens.hpp"

#include <algorithm>
#include <limits>

#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace tigon {

namespace {

// Where the character before `at` begins.
size_t before(std::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

}  // namespace

void AddedTokens::Tree::add(std::string_view text, int32_t which) {
  begins[static_cast<unsigned char>(text[0])] = true;
  uint32_t node = 0;
  for (const char byte : text) {
    const uint64_t edge = uint64_t{node} << 8 | static_cast<unsigned char>(byte);
    node = next.try_emplace(edge, static_cast<uint32_t>(token.size())).first->second;
    if (node == token.size()) token.push_back(-1);
  }
  if (token[node] < 0) token[node] = which;
}

std::pair<size_t, int32_t> AddedTokens::Tree::longest(std::string_view text, size_t at) const {
  std::pair<size_t, int32_t> best{0, -1};
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = next.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (edge == next.end()) break;
    node = edge->second;
    if (token[node] >= 0) best = {i + 1 - at, token[node]};
  }
  return best;
}

AddedTokens::AddedTokens(const Field& list, const Bpe& model, const Normalizer& normalizer) {
  if (list.json.is_null()) return;
  for (const Field& field : list.elements()) add(field, model, normalizer);
}

void AddedTokens::add(const Field& field, const Bpe& model, const Normalizer& normalizer) {
  field.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  const std::string& content = field["content"].string();
  if (content.empty()) return;  // stands nowhere
  if (by_content_.contains(content)) field.refuse("this token stands twice", {}, content);
  const auto id = static_cast<int32_t>(field["id"].integer(0, std::numeric_limits<int32_t>::max() - 1));
  // The package numbers them anew, whatever the file says. Which of the two a model has learnt, nobody knows.
  const int64_t expected = model.token_to_id(content).value_or(std::max(model.tokens(), end_));
  if (id != expected)
    field.refuse("this token has not the id that it would get", std::to_string(expected), std::to_string(id));
  const bool special = field.boolean_or("special", false), normalized = field.boolean_or("normalized", !special);
  const std::string text = normalized ? normalizer.apply(content) : content;
  if (text.empty()) field.refuse("nothing is left of this token once it is normalized", {}, content);
  (normalized ? normalized_ : plain_).add(text, static_cast<int32_t>(tokens_.size()));
  by_content_.emplace(content, tokens_.size());
  by_id_.emplace(id, tokens_.size());
  tokens_.push_back({.text = text,
                     .id = id,
                     .single_word = field.boolean_or("single_word", false),
                     .lstrip = field.boolean_or("lstrip", false),
                     .rstrip = field.boolean_or("rstrip", false),
                     .special = special});
  end_ = std::max<int64_t>(end_, id + 1);
}

std::optional<Section> AddedTokens::found(std::string_view text, size_t at, size_t length, const Token& token,
                                          size_t done) const {
  Section section{.begin = at, .end = at + length, .id = token.id};
  if (token.single_word) {
    const bool joined_before = at > 0 && is_word_character(utf8_step(text, before(text, at)).code);
    const bool joined_after = section.end < text.size() && is_word_character(utf8_step(text, section.end).code);
    if (joined_before || joined_after) return std::nullopt;
  }
  while (token.lstrip && section.begin > done && is_white_space(utf8_step(text, before(text, section.begin)).code)) {
    section.begin = before(text, section.begin);
  }
  while (token.rstrip && section.end < text.size()) {
    const Utf8Step step = utf8_step(text, section.end);
    if (!is_white_space(step.code)) break;
    section.end += step.length;
  }
  return section;
}

void AddedTokens::find(std::string_view text, bool normalized, std::vector<Section>& sections) const {
  const Tree& tree = normalized ? normalized_ : plain_;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (!tree.begins[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const auto [length, which] = tree.longest(text, at);
    if (length == 0) {
      ++at;
      continue;
    }
    const auto section = found(text, at, length, tokens_[static_cast<size_t>(which)], done);
    at += length;
    if (!section) continue;
    if (done < section->begin) sections.push_back({done, section->begin});
    sections.push_back(*section);
    done = section->end;
  }
  if (done != text.size()) sections.push_back({done, text.size()});
}

std::optional<int32_t> AddedTokens::token_to_id(std::string_view token) const {
  const auto found = by_content_.find(std::string(token));
  return found == by_content_.end() ? std::nullopt : std::optional(tokens_[found->second].id);
}

const std::string* AddedTokens::id_to_token(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second].text;
}

bool AddedTokens::is_special(int32_t id) const {
  const auto found = by_id_.find(id);
  return found != by_id_.end() && tokens_[found->second].special;
}

}  // namespace tigon
