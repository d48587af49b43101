#include "tigon/study/flags_file.hpp"

#include <fmt/format.h>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

[[noreturn]] void refuse(const std::string& where, uint32_t line, std::string what, std::string expected = {}) {
  throw Error(
      ErrorCode::invalid_argument,
      {.where = fmt::format("{}, line {}", where, line), .what = std::move(what), .expected = std::move(expected)});
}

FileFlag flag_of(std::string_view key, const toml::node& node, const std::string& where) {
  const uint32_t line = node.source().begin.line;
  FileFlag flag{.name = std::string(key), .value = {}, .line = static_cast<int>(line)};
  if (const auto* text = node.as_string()) {
    flag.value = text->get();
  } else if (const auto* integer = node.as_integer()) {
    flag.value = std::to_string(integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    flag.value = fmt::format("{}", number->get());
  } else if (const auto* on = node.as_boolean()) {
    flag.value = on->get() ? "true" : "false";
    flag.switch_ = true;
  } else {
    refuse(where, line, fmt::format("'{}' is no plain value", key),
           "a text in quotation marks, a number, true or false");
  }
  return flag;
}

}  // namespace

std::vector<FileFlag> flags_from_toml(std::string_view text, const std::string& where) {
  try {
    std::vector<FileFlag> flags;
    for (const auto& [key, node] : toml::parse(text, where)) flags.push_back(flag_of(key.str(), node, where));
    std::sort(flags.begin(), flags.end(), [](const FileFlag& a, const FileFlag& b) { return a.line < b.line; });
    return flags;
  } catch (const toml::parse_error& error) {
    refuse(where, error.source().begin.line, fmt::format("this is not TOML: {}", error.description()));
  }
}

std::string toml_value(const std::string& value) {
  try {
    const toml::table table = toml::parse("v = " + value);
    // One value that says the same when it is read again: an integer of 64 bits, or a number with a point.
    if (table.size() == 1 && table.contains("v") && (table["v"].is_integer() || table["v"].is_floating_point()))
      return value;
  } catch (const toml::parse_error&) {  // a text
  }
  std::ostringstream out;
  const toml::table text{{"v", value}};
  out << toml::default_formatter(text,
                                 toml::default_formatter::default_flags & ~toml::format_flags::allow_literal_strings);
  return out.str().substr(std::string_view("v = ").size());
}

}  // namespace tigon
