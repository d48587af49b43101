#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tigon {

struct ChatMessage {
  std::string role;  // system, user, assistant
  std::string content;
};

// A conversation as one text, and which parts of it, begin to end, are answers: with the token that ends them, so that
// a model learns to stop.
struct RenderedChat {
  struct Range {
    size_t begin, end;
  };
  std::string text;
  std::vector<Range> answers;
};

// How a model wants to be spoken to. A few published templates by name; nothing here runs Jinja.
class ChatTemplate {
 public:
  // Error, with the names that there are, for any other name.
  static ChatTemplate named(const std::string& name);
  // The one whose published Jinja text this is; nothing where it is none of them.
  static std::optional<ChatTemplate> recognised(std::string_view jinja);
  static std::vector<std::string> names();

  const std::string& name() const noexcept { return name_; }
  // Error where the template takes no such conversation.
  RenderedChat render(std::span<const ChatMessage> messages, const std::string& bos, const std::string& eos) const;

 private:
  explicit ChatTemplate(std::string name) : name_(std::move(name)) {}

  std::string name_;
};

// What a model's folder says of it besides its tokens: tokenizer_config.json, and chat_template.jinja beside it.
struct TokenizerConfig {
  static TokenizerConfig load(const std::filesystem::path& folder);

  std::string bos, eos;  // empty: it names none
  std::string chat_template;
};

}  // namespace tigon
