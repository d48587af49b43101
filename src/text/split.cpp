#include <utility>

#include "text/pre_tokenizer.hpp"

namespace tigon {

namespace {

using Range = Pieces::Range;

// Puts the found and the rest of a piece together as a behavior wants them.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, std::vector<Range>& out) : behavior_(behavior), out_(out) {}

  void begin_piece() { last_ = Last::nothing; }
  void add(Range range, bool found) {
    if (range.begin == range.end) return;
    switch (behavior_) {
      case SplitBehavior::isolated: out_.push_back(range); break;
      case SplitBehavior::removed:
        if (!found) out_.push_back(range);
        break;
      case SplitBehavior::contiguous: append(range, last_ == (found ? Last::found : Last::rest)); break;
      case SplitBehavior::merged_with_previous: append(range, found && last_ == Last::rest); break;
      // A found one takes what follows, but for another one.
      case SplitBehavior::merged_with_next: append(range, !found && last_ == Last::found); break;
    }
    last_ = found ? Last::found : Last::rest;
  }

 private:
  enum class Last { nothing, found, rest };

  void append(Range range, bool joins) {
    if (joins) {
      out_.back().end = range.end;
    } else {
      out_.push_back(range);
    }
  }

  SplitBehavior behavior_;
  std::vector<Range>& out_;
  Last last_ = Last::nothing;
};

template <class Find>
void split(Pieces& pieces, SplitBehavior behavior, bool invert, const Find& find) {
  std::vector<Range> out;
  out.reserve(pieces.ranges.size());
  Joiner joiner(behavior, out);
  for (const Range& range : pieces.ranges) {
    const std::string_view piece = pieces.piece(range);
    joiner.begin_piece();
    size_t at = 0;
    while (at < piece.size()) {
      const auto match = find(piece, at);
      if (!match) break;
      joiner.add({range.begin + at, range.begin + match->begin}, invert);
      joiner.add({range.begin + match->begin, range.begin + match->end}, !invert);
      at = match->end;
    }
    joiner.add({range.begin + at, range.end}, invert);
  }
  pieces.ranges = std::move(out);
}

class RegexSplit final : public PreTokenizer::Step {
 public:
  RegexSplit(const std::string& pattern, const std::string& where, SplitBehavior behavior, bool invert)
      : regex_(pattern, where), behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces, RegexScratch& scratch) const override {
    split(pieces, behavior_, invert_,
          [&](std::string_view piece, size_t from) { return regex_.find(piece, from, scratch); });
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

class PlainSplit final : public PreTokenizer::Step {
 public:
  PlainSplit(std::string pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces, RegexScratch&) const override {
    split(pieces, behavior_, invert_, [&](std::string_view piece, size_t from) -> std::optional<Regex::Match> {
      const size_t at = piece.find(pattern_, from);
      if (at == std::string_view::npos) return std::nullopt;
      return Regex::Match{at, at + pattern_.size()};
    });
  }

 private:
  std::string pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace

std::unique_ptr<PreTokenizer::Step> make_regex_split(const std::string& pattern, const std::string& where,
                                                     SplitBehavior behavior, bool invert) {
  return std::make_unique<RegexSplit>(pattern, where, behavior, invert);
}

std::unique_ptr<PreTokenizer::Step> make_plain_split(const std::string& pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<PlainSplit>(pattern, behavior, invert);
}

}  // namespace tigon
