#include "text/utf8.hpp"

#include <cstdint>
#include <cstring>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

// By the first byte: how many follow, and what the first of these may be (Unicode, table 3-7).
struct Lead {
  size_t following;
  unsigned char low = 0x80, high = 0xBF;
};

Lead lead_of(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1};
  if (byte == 0xE0) return {2, 0xA0};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2};
  if (byte == 0xF0) return {3, 0x90};
  if (byte >= 0xF1 && byte <= 0xF3) return {3};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0};
}

size_t ascii_from(std::string_view bytes, size_t at) {
  constexpr uint64_t kHigh = 0x8080808080808080u;
  for (uint64_t word = 0; at + 8 <= bytes.size(); at += 8) {
    std::memcpy(&word, bytes.data() + at, 8);
    if ((word & kHigh) != 0) break;
  }
  while (at < bytes.size() && static_cast<unsigned char>(bytes[at]) < 0x80) ++at;
  return at;
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes, size_t at) {
  using Kind = Utf8Step::Kind;
  const auto first = static_cast<unsigned char>(bytes[at]);
  if (first < 0x80) return {Kind::character, 1, first};
  Lead lead = lead_of(first);
  if (lead.following == 0) return {Kind::malformed, 1};
  char32_t code = first & (0x3Fu >> lead.following);
  for (size_t i = 1; i <= lead.following; ++i) {
    if (at + i == bytes.size()) return {Kind::cut, i};
    const auto byte = static_cast<unsigned char>(bytes[at + i]);
    if (byte < lead.low || byte > lead.high) return {Kind::malformed, i};
    lead.low = 0x80, lead.high = 0xBF;
    code = code << 6 | (byte & 0x3Fu);
  }
  return {Kind::character, lead.following + 1, code};
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
    return;
  }
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

size_t valid_utf8(std::string_view bytes) {
  size_t at = ascii_from(bytes, 0);
  while (at < bytes.size()) {
    const Utf8Step step = utf8_step(bytes, at);
    if (step.kind != Utf8Step::Kind::character) return at;
    at = step.length == 1 ? ascii_from(bytes, at) : at + step.length;
  }
  return at;
}

void check_text_length(size_t bytes) {
  if (bytes < size_t{1} << 31) return;
  throw Error(ErrorCode::unsupported, {.where = "tokenizer",
                                       .what = "the text is too long",
                                       .expected = "less than 2 GiB",
                                       .got = std::to_string(bytes) + " bytes",
                                       .fix = "Cut it into several."});
}

std::string repaired_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t valid = valid_utf8(bytes);
    text.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    bytes.remove_prefix(utf8_step(bytes, 0).length);
    text.append(kReplacement);
  }
  return text;
}

}  // namespace tigon
