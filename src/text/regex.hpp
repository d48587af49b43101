#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tigon {

// What a thread needs to match with any Regex.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Data;
  std::unique_ptr<Data> data_;
};

// A regular expression in the dialect of tokenizer.json (Oniguruma's), over valid UTF-8. Of the dialect only what
// tokenizers use and what has one meaning in both libraries; the rest is refused, and so is a pattern that matches
// nothing at all.
class Regex {
 public:
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  struct Match {
    size_t begin, end;
  };
  // The first match that begins at `from` or later.
  std::optional<Match> find(std::string_view text, size_t from, RegexScratch& scratch) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string where_;
};

// The same pattern for PCRE2.
std::string pcre2_pattern(const std::string& pattern, const std::string& where);

}  // namespace tigon
