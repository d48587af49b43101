#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/fields.hpp"
#include "text/regex.hpp"

namespace tigon {

// A text in pieces, none of them empty, in order. What is between two pieces was dropped.
struct Pieces {
  struct Range {
    size_t begin, end;
  };
  std::string_view text;
  std::vector<Range> ranges;
  bool first = false;  // the text begins where the whole one began
  std::string own;     // the text where a step has changed it

  std::string_view piece(const Range& range) const { return text.substr(range.begin, range.end - range.begin); }
};

// Cuts a text where no token may cross.
class PreTokenizer {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    virtual void apply(Pieces& pieces, RegexScratch& scratch) const = 0;
  };

  PreTokenizer() = default;
  explicit PreTokenizer(const Field& field);

  void apply(Pieces& pieces, RegexScratch& scratch) const;
  // Whether pieces are taken byte by byte from there on, and not by characters.
  bool byte_level() const noexcept { return byte_level_; }
  bool prepends() const noexcept { return prepends_; }  // something to pieces, though none begins the whole text

 private:
  void add(const Field& field);

  std::vector<std::unique_ptr<const Step>> steps_;
  bool byte_level_ = false, prepends_ = false;
};

// By a pattern that is found again and again: what becomes of it, and of what is between.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
std::unique_ptr<PreTokenizer::Step> make_regex_split(const std::string& pattern, const std::string& where,
                                                     SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer::Step> make_plain_split(const std::string& pattern, SplitBehavior behavior, bool invert);

}  // namespace tigon
