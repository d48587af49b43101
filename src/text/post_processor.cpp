#include "text/post_processor.hpp"

#include <limits>

namespace tigon {

void PostProcessor::add(const Field& field) {
  if (field.json.is_null()) return;
  const std::string type = field.type();
  if (type == "Sequence") {
    field.only({"type", "processors"});
    for (const Field& part : field["processors"].elements()) add(part);
  } else if (type == "TemplateProcessing") {
    add_template(field);
  } else if (type != "ByteLevel") {  // which moves places in the text, and no ids
    field.refuse("this post-processor is not known", "TemplateProcessing, ByteLevel, Sequence", type);
  }
}

void PostProcessor::add_template(const Field& field) {
  field.only({"type", "single", "pair", "special_tokens"});
  std::vector<int32_t> parts[2];
  size_t texts = 0;
  for (const Field& piece : field["single"].elements()) {
    piece.only({"Sequence", "SpecialToken"});
    if (piece.has("Sequence")) {
      if (++texts > 1) piece.refuse("the text stands twice in its template");
      continue;
    }
    const Field token = field["special_tokens"][piece["SpecialToken"]["id"].string()];
    for (const Field& id : token["ids"].elements())
      parts[texts].push_back(static_cast<int32_t>(id.integer(0, std::numeric_limits<int32_t>::max())));
  }
  if (texts != 1) field.refuse("the text does not stand in its template");
  before.insert(before.begin(), parts[0].begin(), parts[0].end());
  after.insert(after.end(), parts[1].begin(), parts[1].end());
}

}  // namespace tigon
