#include "text/byte_level.hpp"

#include <array>

#include "text/utf8.hpp"

namespace tigon {

namespace {

bool can_be_seen(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr int kFirstMoved = 0x100;
constexpr int kCharacters = kFirstMoved + 68;  // as many bytes cannot be seen

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<int, kCharacters> byte{};

  Tables() {
    byte.fill(-1);
    int moved = kFirstMoved;
    for (int i = 0; i < 256; ++i) {
      const int code = can_be_seen(i) ? i : moved++;
      character[static_cast<size_t>(i)] = static_cast<char32_t>(code);
      byte[static_cast<size_t>(code)] = i;
    }
  }
};

const Tables& tables() {
  static const Tables made;
  return made;
}

}  // namespace

std::string to_byte_characters(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, tables().character[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<std::string> from_byte_characters(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    const int byte = step.code < kCharacters ? tables().byte[step.code] : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    at += step.length;
  }
  return bytes;
}

}  // namespace tigon
