#include "text/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

[[noreturn]] void refuse(const std::string& where, std::string what, std::string got) {
  throw Error(ErrorCode::unsupported, {.where = where, .what = std::move(what), .got = std::move(got)});
}

}  // namespace

struct RegexScratch::Data {
  // Nothing here captures, so one pair of places will do.
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr);
};

RegexScratch::RegexScratch() : data_(std::make_unique<Data>()) {
  if (data_->match == nullptr || data_->context == nullptr) throw std::bad_alloc();
  pcre2_jit_stack_assign(data_->context, nullptr, data_->stack);
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free(data_->match);
  pcre2_match_context_free(data_->context);
  pcre2_jit_stack_free(data_->stack);
}

struct Regex::Code {
  pcre2_code* compiled = nullptr;
};

Regex::Regex(const std::string& pattern, const std::string& where) : code_(std::make_unique<Code>()), where_(where) {
  const std::string text = pcre2_pattern(pattern, where);
  int error = 0;
  PCRE2_SIZE place = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);  // what a dot stops at
  code_->compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &error, &place, context);
  pcre2_compile_context_free(context);
  if (code_->compiled == nullptr) refuse(where, "the regular expression is wrong: " + message_of(error), pattern);
  uint32_t matches_nothing = 0;
  pcre2_pattern_info(code_->compiled, PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0) {
    pcre2_code_free(code_->compiled);
    refuse(where, "the regular expression may match no character at all", pattern);
  }
  // Where machine code cannot be made, pcre2_match interprets.
  (void)pcre2_jit_compile(code_->compiled, PCRE2_JIT_COMPLETE);
}

Regex::~Regex() { pcre2_code_free(code_->compiled); }

std::optional<Regex::Match> Regex::find(std::string_view text, size_t from, RegexScratch& scratch) const {
  RegexScratch::Data& data = *scratch.data_;
  const int found = pcre2_match(code_->compiled, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK, data.match, data.context);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    throw Error(ErrorCode::unsupported, {.where = where_,
                                         .what = "the regular expression gives up on a text: " + message_of(found),
                                         .fix = "Cut the text into shorter ones."});
  }
  const PCRE2_SIZE* places = pcre2_get_ovector_pointer(data.match);
  return Match{places[0], places[1]};
}

}  // namespace tigon
