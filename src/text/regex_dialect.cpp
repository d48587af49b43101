// From Oniguruma's dialect of regular expressions, as the `tokenizers` package has it, to PCRE2's. They share most of
// their words; those that differ are spelt out here or refused, so that none changes its meaning in silence.
#include <algorithm>
#include <array>
#include <string_view>

#include "text/regex.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

// White_Space; PCRE2's own \s has U+180E as well, which is none.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

class Dialect {
 public:
  Dialect(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string translated() {
    while (at_ < pattern_.size()) {
      switch (pattern_[at_]) {
        case '\\': escape(false); break;
        case '[': character_class(); break;
        case '(': group(); break;
        case '{': quantifier(); break;
        case '^':
        case '$': refuse(at_, 1);
        default: copy(1);
      }
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(size_t first, size_t length) const {
    throw Error(ErrorCode::unsupported,
                {.where = where_,
                 .what = "this part of a regular expression is not known",
                 .got = std::string(pattern_.substr(first, length)) + " in " + std::string(pattern_)});
  }
  char peek(size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  void copy(size_t length) {
    result_.append(pattern_.substr(at_, length));
    at_ += length;
  }
  void put(std::string_view text, size_t length) {
    result_.append(text);
    at_ += length;
  }

  void set(std::string_view members, bool in_class, bool negated) {
    if (in_class && negated) refuse(at_, 2);
    if (!in_class) result_.append(negated ? "[^" : "[");
    put(members, 2);
    if (!in_class) result_.push_back(']');
  }

  void escape(bool in_class) {
    const char c = peek(1);
    switch (c) {
      case 's': set(kSpace, in_class, false); return;
      case 'S': set(kSpace, in_class, true); return;
      case 'w': set(kWord, in_class, false); return;
      case 'W': set(kWord, in_class, true); return;
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't': copy(2); return;
      case 'p':
      case 'P': property(); return;
      case 'u': code_point(4); return;
      case 'x':
        if (peek(2) == '{') {
          braces(2);
        } else {
          code_point(2);
        }
        return;
      default: break;
    }
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\0';
    if (word) refuse(at_, 2);
    copy(2);
  }

  // \u2581, \x20
  void code_point(size_t digits) {
    const std::string_view hex = pattern_.substr(std::min(at_ + 2, pattern_.size()), digits);
    if (hex.size() != digits || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      refuse(at_, 2 + digits);
    // Two of these are one byte to Oniguruma, and not a character, where they are no ASCII.
    if (digits == 2 && hex[0] >= '8') refuse(at_, 4);
    put("\\x{" + std::string(hex) + "}", 2 + digits);
  }

  // Copies up to the brace that closes the one that is `ahead`.
  void braces(size_t ahead) {
    const size_t close = pattern_.find('}', at_);
    if (peek(ahead) != '{' || close == std::string_view::npos) refuse(at_, 2);
    copy(close + 1 - at_);
  }

  void property() {
    // Their names are not the same in both libraries; general categories and scripts are.
    constexpr std::array<std::string_view, 10> kNames = {"L&",   "Han",    "Hiragana", "Katakana", "Hangul",
                                                         "Thai", "Arabic", "Latin",    "Cyrillic", "Greek"};
    const size_t close = pattern_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) refuse(at_, 2);
    const std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    const bool category = name.size() == 1 || name.size() == 2;
    if ((!category || name[0] == '^') && std::find(kNames.begin(), kNames.end(), name) == kNames.end())
      refuse(at_, close + 1 - at_);
    copy(close + 1 - at_);
  }

  void character_class() {
    const size_t begin = at_;
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') refuse(begin, 3);
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '[' || pattern_.substr(at_, 2) == "&&") refuse(at_, 2);  // sets of sets
      if (pattern_[at_] == '\\') {
        escape(true);
      } else {
        copy(1);
      }
    }
    if (at_ == pattern_.size()) refuse(begin, pattern_.size() - begin);
    copy(1);
  }

  void group() {
    if (peek(1) == '*') refuse(at_, 2);
    if (peek(1) != '?') {
      copy(1);
      return;
    }
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (pattern_.substr(at_, known.size()) == known) {
        copy(known.size());
        return;
      }
    }
    refuse(at_, 4);
  }

  // {2}, {1,3}, {1,}. With a + behind it is possessive in one dialect and repeated in the other.
  void quantifier() {
    const size_t begin = at_, close = pattern_.find('}', at_);
    if (close == std::string_view::npos) refuse(begin, 2);
    const std::string_view inside = pattern_.substr(at_ + 1, close - at_ - 1);
    if (inside.empty() || inside[0] == ',' || inside.find_first_not_of("0123456789,") != std::string_view::npos)
      refuse(begin, close + 1 - begin);
    copy(close + 1 - at_);
    if (peek(0) == '+' || peek(0) == '?') refuse(begin, at_ + 1 - begin);
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  std::string result_;
};

}  // namespace

std::string pcre2_pattern(const std::string& pattern, const std::string& where) {
  return Dialect(pattern, where).translated();
}

}  // namespace tigon
