#pragma once

#include <filesystem>
#include <string>

#include "model_text.hpp"
#include "tigon/generate/continuation.hpp"
#include "tigon/text/chat_template.hpp"

namespace tigon::app {

// How a model is spoken to: a template by name, or that of a folder, with the folder's tokens for begin and end.
struct ChatStyle {
  ChatStyle(const std::string& name, const std::filesystem::path& folder);

  ChatTemplate form;
  std::string bos, eos;
};

// A dialogue: a line from standard input, the model's answer to all that was said, and so on to the end of the input.
// `room`: the most tokens of an answer. Returns 0, or what the signal that came in an answer makes of it; while a
// question is awaited, a signal ends the program as any other.
int chat(Generator& generator, const ModelText& words, const ChatStyle& style, const std::string& system, int64_t room,
         ContinueOptions options);

}  // namespace tigon::app
