#include "report/shape.hpp"

#include <fmt/format.h>

#include "tigon/core/error.hpp"

namespace tigon::report {

namespace {

std::string inside(const std::string& where, const std::string& key) { return fmt::format("{}, '{}'", where, key); }

Json shaped_object(const Json& value, const Json& example, const std::string& where) {
  Json::Object members;
  for (const auto& [name, inner] : example.object(where)) {
    if (name == "*") {
      for (const auto& [key, member] : value.object(where)) {
        members.emplace_back(key, shaped(member, inner, inside(where, key)));
      }
      continue;
    }
    const bool optional = name.ends_with("?");
    const std::string key = optional ? name.substr(0, name.size() - 1) : name;
    const Json* member = value.find(key);
    if (member == nullptr || (optional && member->is_null())) {
      if (optional) continue;
      throw Error(ErrorCode::invalid_argument, {.where = where, .what = fmt::format("'{}' is missing", key)});
    }
    members.emplace_back(key, shaped(*member, inner, inside(where, key)));
  }
  return members;
}

}  // namespace

Json shaped(const Json& value, const Json& example, const std::string& where) {
  if (example.is_object()) {
    (void)value.object(where);
    return shaped_object(value, example, where);
  }
  if (example.is_array()) {
    Json::Array elements;
    elements.reserve(value.array(where).size());
    for (const Json& element : value.array(where)) elements.push_back(shaped(element, example.array(where)[0], where));
    return elements;
  }
  if (example.is_string()) return value.string(where);
  if (example.is_bool()) return value.boolean(where);
  if (!example.is_integer()) {
    (void)value.number(where);
    return value;
  }
  const int64_t number = value.integer(where);
  if (number < 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = where, .what = "the number is negative", .got = std::to_string(number)});
  }
  return number;
}

}  // namespace tigon::report
