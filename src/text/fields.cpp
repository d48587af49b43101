#include "text/fields.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

bool Field::has(std::string_view key) const {
  const Json* value = json.find(key);
  return value != nullptr && !value->is_null();
}

Field Field::operator[](std::string_view key) const {
  static const Json kNull;
  const Json* value = json.find(key);
  return {value != nullptr ? *value : kNull, fmt::format("{}, {}", where, key)};
}

std::vector<Field> Field::elements() const {
  std::vector<Field> all;
  const Json::Array& array = json.array(where);
  all.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) all.push_back({array[i], fmt::format("{}[{}]", where, i)});
  return all;
}

int64_t Field::integer(int64_t least, int64_t most) const {
  const int64_t value = json.integer(where);
  if (value < least || value > most)
    refuse("the number is out of range", fmt::format("{} to {}", least, most), std::to_string(value));
  return value;
}

std::string Field::character() const {
  const std::string& text = string();
  if (text.empty() || text.size() != utf8_length(text[0])) refuse("this is not one character", {}, text);
  return text;
}

void Field::only(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : json.object(where)) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      refuse("this setting is not known", fmt::format("{}", fmt::join(known, ", ")), key);
  }
}

void Field::refuse(std::string what, std::string expected, std::string got) const {
  throw Error(ErrorCode::unsupported,
              {.where = where, .what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

}  // namespace tigon
