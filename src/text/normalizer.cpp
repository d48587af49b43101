#include "text/normalizer.hpp"

#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace tigon {

namespace {

std::string replaced(std::string_view text, const std::string& pattern, const std::string& content) {
  std::vector<size_t> places;
  for (size_t at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern, at + pattern.size()))
    places.push_back(at);
  // A file may make a book of each letter, and a library of each book.
  check_text_length(text.size() + places.size() * content.size());
  std::string result;
  result.reserve(text.size() + places.size() * content.size());
  size_t copied = 0;
  for (const size_t at : places) {
    result.append(text.substr(copied, at - copied)).append(content);
    copied = at + pattern.size();
  }
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
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::Kind::nfc: result = nfc(result); break;
      case Step::Kind::replace: result = replaced(result, step.pattern, step.content); break;
      case Step::Kind::prepend:
        if (!result.empty()) result.insert(0, step.content);
        break;
    }
  }
  return result;
}

}  // namespace tigon
