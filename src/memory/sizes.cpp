#include "tigon/memory/sizes.hpp"

#include <algorithm>
#include <cctype>
#include <exception>

#include "tigon/core/error.hpp"

namespace tigon {

int64_t bytes_from_string(const std::string& text) {
  struct Unit {
    const char* name;
    double bytes;
  };
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  // In any case of letters, and after a space.
  std::string unit = text.substr(std::min(text.find_first_not_of(' ', used), text.size()));
  for (char& letter : unit) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  for (const Unit& u : {Unit{"", 1},
                        {"b", 1},
                        {"k", 0x1p10},
                        {"kib", 0x1p10},
                        {"m", 0x1p20},
                        {"mib", 0x1p20},
                        {"g", 0x1p30},
                        {"gib", 0x1p30},
                        {"t", 0x1p40},
                        {"tib", 0x1p40},
                        {"kb", 1e3},
                        {"mb", 1e6},
                        {"gb", 1e9},
                        {"tb", 1e12}}) {
    if (used > 0 && unit == u.name && value * u.bytes >= 1 && value * u.bytes < 0x1p62)
      return static_cast<int64_t>(value * u.bytes);
  }
  throw Error(ErrorCode::invalid_argument, {.where = "size",
                                            .what = "this is no amount of memory",
                                            .expected = "such as 24GiB, 24G (the same), 512MB or 1000000",
                                            .got = "'" + text + "'"});
}

}  // namespace tigon
