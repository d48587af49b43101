#include "text/normalizer.hpp"

#include "text/unicode.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

// Calls use(place) for each place of a pattern, from left to right; they do not overlap.
template <class Use>
void for_each_place(std::string_view text, const std::string& pattern, const Use& use) {
  for (size_t at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern, at + pattern.size()))
    use(at);
}

std::string replaced(std::string_view text, const std::string& pattern, const std::string& content, size_t most) {
  size_t count = 0;
  for_each_place(text, pattern, [&](size_t) { ++count; });
  // A file may make a book of each letter, and a library of each book: this is known before it takes memory.
  const size_t size = text.size() - count * pattern.size() + count * content.size();
  if (size > most) {
    throw Error(ErrorCode::unsupported, {.where = "tokenizer, normalizer",
                                         .what = "it makes very much of a little text",
                                         .expected = std::to_string(most) + " bytes at most",
                                         .got = std::to_string(size)});
  }
  std::string result;
  result.reserve(size);
  size_t copied = 0;
  for_each_place(text, pattern, [&](size_t at) {
    result.append(text.substr(copied, at - copied)).append(content);
    copied = at + pattern.size();
  });
  return result.append(text.substr(copied));
}

}  // namespace

const std::string& plain_pattern(const Field& field) {
  if (!field.has("String"))
    field.refuse("only a plain text can be replaced", "{\"String\": …}", field.json.dump(false));
  const std::string& text = field["String"].string();
  if (text.empty()) field.refuse("the text is empty");
  return text;
}

Normalizer::Normalizer(const Field& field) { add(field); }

void Normalizer::add(const Field& field) {
  if (field.json.is_null()) return;
  const std::string type = field.type();
  if (type == "Sequence") {
    field.only({"type", "normalizers"});
    for (const Field& part : field["normalizers"].elements()) add(part);
  } else if (type == "NFC") {
    field.only({"type"});
    steps_.push_back({.kind = Step::Kind::nfc});
  } else if (type == "Replace") {
    field.only({"type", "pattern", "content"});
    steps_.push_back({.kind = Step::Kind::replace,
                      .pattern = plain_pattern(field["pattern"]),
                      .content = field["content"].string()});
  } else if (type == "Prepend") {
    field.only({"type", "prepend"});
    steps_.push_back({.kind = Step::Kind::prepend, .content = field["prepend"].string()});
    prepends_ = true;
  } else {
    field.refuse("this normalizer is not known", "NFC, Replace, Prepend, Sequence", type);
  }
}

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  const size_t most = 64 * text.size() + (size_t{1} << 16);  // ▁ for a space is 3
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::Kind::nfc: result = nfc(result); break;
      case Step::Kind::replace: result = replaced(result, step.pattern, step.content, most); break;
      case Step::Kind::prepend:
        if (!result.empty()) result.insert(0, step.content);
        break;
    }
  }
  return result;
}

}  // namespace tigon
