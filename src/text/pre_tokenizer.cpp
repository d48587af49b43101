#include "text/pre_tokenizer.hpp"

#include <utility>

#include "text/metaspace.hpp"

namespace tigon {

namespace {

using Range = Pieces::Range;

// What GPT-2 cuts by.
constexpr const char* kWords = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Writes the pieces anew; `write` appends one.
template <class Write>
void rewrite(Pieces& pieces, const Write& write) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (Range& range : pieces.ranges) {
    const size_t begin = text.size();
    write(text, pieces.piece(range));
    range = {begin, text.size()};
  }
  pieces.own = std::move(text);
  pieces.text = pieces.own;
}

// A space before each piece that has none.
class PrefixSpace final : public PreTokenizer::Step {
 public:
  void apply(Pieces& pieces, RegexScratch&) const override {
    rewrite(pieces, [](std::string& text, std::string_view piece) {
      if (piece[0] != ' ') text.push_back(' ');
      text.append(piece);
    });
  }
};

// Spaces become a character of their own, by SentencePiece's custom, and the beginning has one.
class Metaspace final : public PreTokenizer::Step {
 public:
  explicit Metaspace(MetaspaceSettings settings) : settings_(std::move(settings)) {}
  void apply(Pieces& pieces, RegexScratch&) const override {
    using Prepend = MetaspaceSettings::Prepend;
    const auto& [replacement, prepend, ignored] = settings_;
    rewrite(pieces, [&](std::string& text, std::string_view piece) {
      const bool first = pieces.first && piece.data() == pieces.text.data();
      const bool there = piece[0] == ' ' || piece.starts_with(replacement);
      if (!there && (prepend == Prepend::always || (prepend == Prepend::first && first))) text.append(replacement);
      for (size_t space = 0; (space = piece.find(' ')) != std::string_view::npos;) {
        text.append(piece.substr(0, space)).append(replacement);
        piece.remove_prefix(space + 1);
      }
      text.append(piece);
    });
  }

 private:
  MetaspaceSettings settings_;
};

SplitBehavior behavior_of(const Field& field) {
  const std::string& name = field.string();
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  field.refuse("this behavior is not known", "Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous", name);
}

std::unique_ptr<PreTokenizer::Step> split_of(const Field& field) {
  field.only({"type", "pattern", "behavior", "invert"});
  const SplitBehavior behavior = behavior_of(field["behavior"]);
  const bool invert = field.boolean_or("invert", false);
  const Field pattern = field["pattern"];
  pattern.only({"Regex", "String"});
  if (pattern.has("Regex")) {
    return make_regex_split(pattern["Regex"].string(), pattern["Regex"].where, behavior, invert);
  }
  const std::string& text = pattern["String"].string();
  if (text.empty()) pattern.refuse("the text to split by is empty");
  return make_plain_split(text, behavior, invert);
}

}  // namespace

PreTokenizer::PreTokenizer(const Field& field) { add(field); }

void PreTokenizer::add(const Field& field) {
  if (field.json.is_null()) return;
  const std::string type = field.type();
  if (byte_level_)
    field.refuse("after ByteLevel there are bytes, and nothing more is known to be done with them", {}, type);
  if (type == "Sequence") {
    field.only({"type", "pretokenizers"});
    for (const Field& part : field["pretokenizers"].elements()) add(part);
  } else if (type == "Split") {
    steps_.push_back(split_of(field));
  } else if (type == "Digits") {
    field.only({"type", "individual_digits"});
    const bool each = field.boolean_or("individual_digits", false);
    steps_.push_back(
        make_regex_split(R"(\p{N})", field.where, each ? SplitBehavior::isolated : SplitBehavior::contiguous, false));
  } else if (type == "Metaspace") {
    const MetaspaceSettings settings(field);
    prepends_ = prepends_ || settings.prepend == MetaspaceSettings::Prepend::always;
    steps_.push_back(std::make_unique<Metaspace>(settings));
    if (settings.split)
      steps_.push_back(make_plain_split(settings.replacement, SplitBehavior::merged_with_next, false));
  } else if (type == "ByteLevel") {
    field.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (field.boolean_or("add_prefix_space", true)) {
      steps_.push_back(std::make_unique<PrefixSpace>());
      prepends_ = true;
    }
    if (field.boolean_or("use_regex", true))
      steps_.push_back(make_regex_split(kWords, field.where, SplitBehavior::isolated, false));
    byte_level_ = true;
  } else {
    field.refuse("this pre-tokenizer is not known", "ByteLevel, Split, Metaspace, Digits, Sequence", type);
  }
}

void PreTokenizer::apply(Pieces& pieces, RegexScratch& scratch) const {
  for (const auto& step : steps_) step->apply(pieces, scratch);
}

}  // namespace tigon
