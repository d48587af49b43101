#include "text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/utf8.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

// Below it every character is its own normalization form, and none joins one before it.
constexpr char32_t kFirstMark = 0x300;

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

void append_decomposed(std::vector<utf8proc_int32_t>& codes, char32_t code) {
  utf8proc_int32_t parts[16];
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, 16, UTF8PROC_DECOMPOSE, &boundary);
  if (count < 0 || count > 16) throw Error(ErrorCode::internal, {.where = "nfc", .what = "a long decomposition"});
  codes.insert(codes.end(), parts, parts + count);
}

// Marks after a character, by their class. Not by utf8proc, which takes the square of a run's length.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto by_class = [](auto a, auto b) { return combining_class(a) < combining_class(b); };
  const auto is_mark = [](auto code) { return combining_class(code) != 0; };
  for (auto first = codes.begin(); first != codes.end();) {
    first = std::find_if(first, codes.end(), is_mark);
    const auto last = std::find_if_not(first, codes.end(), is_mark);
    std::stable_sort(first, last, by_class);
    first = last;
  }
}

void append_composed(std::string& text, std::vector<utf8proc_int32_t>& codes) {
  order_marks(codes);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(text, static_cast<char32_t>(codes[static_cast<size_t>(i)]));
  codes.clear();
}

}  // namespace

bool is_white_space(char32_t code) {
  return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_word_character(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  // The joiners, and letters in circles and squares.
  return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
         (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

std::string nfc(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  std::vector<utf8proc_int32_t> codes;
  size_t copied = 0, last = 0;  // up to where the text is in the result; where the last low character begins
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.code < kFirstMark) {
      last = at;
      at += step.length;
      continue;
    }
    result.append(text.substr(copied, last - copied));
    for (at = last; at < text.size();) {
      const Utf8Step next = utf8_step(text, at);
      if (next.code < kFirstMark && at > last) break;
      append_decomposed(codes, next.code);
      at += next.length;
    }
    append_composed(result, codes);
    copied = last = at;
  }
  result.append(text.substr(copied));
  return result;
}

}  // namespace tigon
