#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tigon {

// What stands at a place of some bytes.
struct Utf8Step {
  enum class Kind { character, malformed, cut };  // cut: the bytes end within what may become a character
  Kind kind;
  size_t length;  // of the character, or of the longest beginning of one
  char32_t code = 0;
};
Utf8Step utf8_step(std::string_view bytes, size_t at);

// Of text that is valid.
inline size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

void append_utf8(std::string& text, char32_t code);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// How many bytes from the beginning are valid: all of them, or up to the first that are malformed or cut.
size_t valid_utf8(std::string_view bytes);

// Error for a text of 2 GiB or more: places in it are of 32 bits.
void check_text_length(size_t bytes);

// With U+FFFD for each longest beginning of a character that is not one.
std::string repaired_utf8(std::string_view bytes);

}  // namespace tigon
