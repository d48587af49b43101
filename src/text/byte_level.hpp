#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tigon {

// GPT-2 writes each byte as a character that can be seen: itself where that is one of Latin-1 that can, else one from
// U+0100 on, in order.
std::string to_byte_characters(std::string_view bytes);

// The bytes of such a text; nothing where a character stands for none.
std::optional<std::string> from_byte_characters(std::string_view text);

}  // namespace tigon
