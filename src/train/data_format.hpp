#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tigon {

// What a file that is no token file holds, by its first bytes and its name: "plain text", "JSON lines", "gzip", …
std::string format_of_bytes(const std::filesystem::path& path, std::string_view first_bytes);

// Whether that is text, of any kind. A token file's is empty.
bool is_text(const std::string& format);

// Bytes are tokens of a model whose vocabulary they are, and only those of text. Any other model would learn from byte
// values that mean other words to it, and from those of a compressed file there is nothing to learn.
void refuse_bytes(const std::filesystem::path& path, const std::string& format, int64_t vocab);

}  // namespace tigon
