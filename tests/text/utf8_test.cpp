#include "text/utf8.hpp"

#include <gtest/gtest.h>

namespace tigon {
namespace {

TEST(Utf8, OneReplacementForEachLongestBeginningOfACharacter) {
  const std::string r(kReplacement);
  const std::pair<const char*, std::string> cases[] = {
      {"", ""},
      {"a\xC3\xA9\xE2\x96\x81\xF0\x9F\x99\x82z", "a\xC3\xA9\xE2\x96\x81\xF0\x9F\x99\x82z"},
      {"\x80\xBF", r + r},
      {"\xC0\xAF", r + r},          // too long a way to write /
      {"\xE0\x9F\xBF", r + r + r},  // the same, in three bytes
      {"\xED\xA0\x80", r + r + r},  // half of a pair of UTF-16
      {"\xF4\x90\x80\x80", r + r + r + r},
      {"\xF0\x9F\x99", r},  // cut at the end
      {"\xF0\x9F\x99x", r + "x"},
      {"\xE2\x96\xE2\x96\x81", r + "\xE2\x96\x81"},
      {"12345678\xFF", "12345678" + r},
      {"1234567\xC3", "1234567" + r},
  };
  for (const auto& [bytes, expected] : cases) EXPECT_EQ(repaired_utf8(bytes), expected) << bytes;
}

TEST(Utf8, EveryCodePointThereAndBack) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    std::string text;
    append_utf8(text, code);
    const Utf8Step step = utf8_step(text, 0);
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    ASSERT_EQ(step.kind == Utf8Step::Kind::character, !surrogate) << std::hex << uint32_t{code};
    if (surrogate) continue;
    ASSERT_EQ(step.code, code);
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(utf8_length(text[0]), text.size());
    ASSERT_EQ(valid_utf8(text), text.size());
    for (size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(utf8_step(std::string_view(text).substr(0, cut), 0).kind, Utf8Step::Kind::cut);
  }
}

}  // namespace
}  // namespace tigon
