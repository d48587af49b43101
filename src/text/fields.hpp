#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json/json.hpp"

namespace tigon {

// A JSON value that knows where it stands, so that what is wrong with it can be said by name.
struct Field {
  const Json& json;
  std::string where;

  bool has(std::string_view key) const;  // and it is not null
  Field operator[](std::string_view key) const;
  std::vector<Field> elements() const;

  const std::string& string() const { return json.string(where); }
  bool boolean() const { return json.boolean(where); }
  int64_t integer(int64_t least, int64_t most) const;
  // Where there is no such key, the other.
  bool boolean_or(std::string_view key, bool other) const { return has(key) ? (*this)[key].boolean() : other; }
  // The one character of a string.
  std::string character() const;

  std::string type() const { return (*this)["type"].string(); }
  // Refuses keys that are none of these: what they ask for is not known here.
  void only(std::initializer_list<std::string_view> known) const;

  [[noreturn]] void refuse(std::string what, std::string expected = {}, std::string got = {}) const;
};

}  // namespace tigon
