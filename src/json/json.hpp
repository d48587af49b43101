#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tigon {

// A JSON value as the files around a model use it: configs, safetensors headers, logs. Text from outside is hostile:
// parse() refuses what is not JSON, keys that stand twice, and nesting deeper than any of these files has.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order of the file

  Json() = default;
  Json(bool value) : value_(value) {}                      // NOLINT: reads as the value it is
  Json(int64_t value) : value_(value) {}                   // NOLINT
  Json(int value) : value_(int64_t{value}) {}              // NOLINT
  Json(double value) : value_(value) {}                    // NOLINT
  Json(std::string value) : value_(std::move(value)) {}    // NOLINT
  Json(const char* value) : value_(std::string(value)) {}  // NOLINT
  Json(Array value) : value_(std::move(value)) {}          // NOLINT
  Json(Object value) : value_(std::move(value)) {}         // NOLINT

  // `where` names the file in errors.
  static Json parse(std::string_view text, const std::string& where);
  // Indented by two spaces, or on one line.
  std::string dump(bool indented = true) const;

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const noexcept { return std::holds_alternative<bool>(value_); }
  bool is_integer() const noexcept { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const noexcept { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const noexcept { return std::holds_alternative<std::string>(value_); }
  bool is_array() const noexcept { return std::holds_alternative<Array>(value_); }
  bool is_object() const noexcept { return std::holds_alternative<Object>(value_); }

  // The value as a type it must have; `where` says which field of which file is wrong otherwise.
  bool boolean(const std::string& where) const;
  int64_t integer(const std::string& where) const;
  double number(const std::string& where) const;  // integers as well
  const std::string& string(const std::string& where) const;
  const Array& array(const std::string& where) const;
  const Object& object(const std::string& where) const;

  // A member of an object, or null when it is not there (or this is no object).
  const Json* find(std::string_view key) const noexcept;
  // Sets a member, or adds it at the end.
  void set(std::string_view key, Json value);

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace tigon
