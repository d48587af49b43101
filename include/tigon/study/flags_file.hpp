#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tigon {

// A flag as a file gives it: `batch = 8` for --batch 8, `bytes = true` for --bytes.
struct FileFlag {
  std::string name;      // without dashes
  std::string value;     // as it would stand on a command line
  bool switch_ = false;  // the value was true or false
  int line = 0;
};

// From TOML with nothing but keys and plain values. `where` names the file in errors.
std::vector<FileFlag> flags_from_toml(std::string_view text, const std::string& where);

// "a text" as TOML writes it: numbers as they are, anything else in quotation marks.
std::string toml_value(const std::string& value);

}  // namespace tigon
