#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tigon {

// The words of a text, as a shell takes them apart: by spaces, with '…' and "…" around words that have some. Error
// where a quotation mark has no partner.
std::vector<std::string> words_of(std::string_view text, const std::string& where);
}  // namespace tigon
