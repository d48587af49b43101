#include "help_formatter.hpp"

#include <algorithm>
#include <sstream>

namespace tigon::app {

namespace {

constexpr size_t kIndent = 28, kWidth = 100;

// What stands for the value: the choices where there are few, or a word of the kind.
std::string value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};  // a flag
  const std::string type = option.get_type_name();
  if (const size_t brace = type.find('{'); brace != std::string::npos) {
    std::string choices = type.substr(brace + 1, type.rfind('}') - brace - 1);
    std::replace(choices.begin(), choices.end(), ',', '|');
    return choices;
  }
  const std::string kind = type.substr(0, type.find(':'));
  if (kind == "INT" || kind == "UINT") return "N";
  return kind == "FLOAT" ? "X" : kind;
}

}  // namespace

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string left = "  " + make_option_name(option, is_positional);
  if (left.ends_with("{false}")) left.erase(left.rfind('{'));  // of a flag that switches another off
  if (const std::string value = value_of(*option); !value.empty() && !is_positional) left += " " + value;
  std::string right = option->get_description();
  if (!option->get_default_str().empty()) right += " (default " + option->get_default_str() + ")";

  std::string text = left;
  size_t at = left.size();
  const auto new_line = [&] {
    text += "\n" + std::string(kIndent, ' ');
    at = kIndent;
  };
  if (at + 2 > kIndent) {
    new_line();
  } else {
    text.resize(kIndent, ' ');
    at = kIndent;
  }
  std::istringstream words(right);
  for (std::string word; words >> word;) {
    if (at > kIndent && at + 1 + word.size() > kWidth) new_line();
    if (at > kIndent) text += " ", ++at;
    text += word;
    at += word.size();
  }
  return text + "\n";
}

}  // namespace tigon::app
