#pragma once

#include <string>
#include <string_view>

namespace tigon {

// The property White_Space.
bool is_white_space(char32_t code);

// What \w means to regular expressions in Unicode (UTS #18): letters, marks, decimal digits, connectors, joiners.
bool is_word_character(char32_t code);

// Normalization form C of valid UTF-8, in linear time but for sorting runs of marks.
std::string nfc(std::string_view text);

}  // namespace tigon
