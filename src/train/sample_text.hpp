// What a line of JSON says, as a text of which some parts are to be learnt.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/text/chat_template.hpp"

namespace tigon {

struct SampleRules {
  std::optional<ChatTemplate> chat;
  std::string bos, eos;
  std::string text_field;
};

struct SampleText {
  enum class Kind { text, prompt, chat };
  Kind kind;
  std::string text;
  std::vector<RenderedChat::Range> answers;  // of prompts and chats
  bool repaired = false;                     // it had bytes that are no UTF-8
};

// Error, of which the message says why, for a line that gives nothing: an invalid argument. Any other is the rules'.
SampleText read_sample(std::string_view line, const SampleRules& rules);

}  // namespace tigon
