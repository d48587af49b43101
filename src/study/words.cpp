#include "study/words.hpp"

#include <utility>

#include "tigon/core/error.hpp"
#include "tigon/study/study.hpp"

namespace tigon {

std::vector<std::string> words_of(std::string_view text, const std::string& where) {
  std::vector<std::string> words;
  std::string word;
  bool within = false;  // a word, maybe an empty one in quotation marks
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      c == quote ? void(quote = 0) : word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      within = true;
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (within) words.push_back(std::exchange(word, {}));
      within = false;
    } else {
      word.push_back(c);
      within = true;
    }
  }
  if (quote != 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = where, .what = "a quotation mark has no partner", .got = "'" + std::string(text) + "'"});
  }
  if (within) words.push_back(std::move(word));
  return words;
}

std::string command_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    const bool plain = !word.empty() && word.find_first_of(" \t\r\n'\"\\$`!*?[]{}()<>|&;#~") == std::string::npos;
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace tigon
