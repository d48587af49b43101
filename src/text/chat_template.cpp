#include "tigon/text/chat_template.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "json/json.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace {

enum class System { turn, in_first_question, refused };

// What stands around the words of somebody. {bos} and {eos} are the tokenizer's.
struct Turn {
  std::string_view before, after;
  std::string_view rest = {};  // behind the token that ends the turn
};

struct Template {
  std::string_view name;
  std::string_view begin = {}, end = {};  // of the whole
  System system_place;
  bool alternates;  // user and assistant take turns, and the user begins
  bool strips;      // white space around what somebody says
  Turn system, user, assistant;
  std::string_view default_system = {};
  std::string_view last_thought = {};  // before the last answer, where it ends the chat: none was thought
};

constexpr Turn kImSystem = {"<|im_start|>system\n", "<|im_end|>", "\n"};
constexpr Turn kImUser = {"<|im_start|>user\n", "<|im_end|>", "\n"};
constexpr Turn kImAssistant = {"<|im_start|>assistant\n", "<|im_end|>", "\n"};

constexpr std::array kTemplates = {
    Template{.name = "chatml",
             .system_place = System::turn,
             .alternates = false,
             .strips = false,
             .system = kImSystem,
             .user = kImUser,
             .assistant = kImAssistant},
    Template{.name = "qwen2",
             .system_place = System::turn,
             .alternates = false,
             .strips = false,
             .system = kImSystem,
             .user = kImUser,
             .assistant = kImAssistant,
             .default_system = "You are a helpful assistant."},
    Template{.name = "qwen2.5",
             .system_place = System::turn,
             .alternates = false,
             .strips = false,
             .system = kImSystem,
             .user = kImUser,
             .assistant = kImAssistant,
             .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    Template{.name = "qwen3",
             .system_place = System::turn,
             .alternates = false,
             .strips = false,
             .system = kImSystem,
             .user = kImUser,
             .assistant = kImAssistant,
             .last_thought = "<think>\n\n</think>\n\n"},
    Template{.name = "smollm2",
             .system_place = System::turn,
             .alternates = false,
             .strips = false,
             .system = kImSystem,
             .user = kImUser,
             .assistant = kImAssistant,
             .default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    Template{.name = "llama3",
             .begin = "{bos}",
             .system_place = System::turn,
             .alternates = false,
             .strips = true,
             .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
             .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
             .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"}},
    Template{.name = "llama2",
             .system_place = System::in_first_question,
             .alternates = true,
             .strips = true,
             .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
             .user = {"{bos}[INST] ", " [/INST]"},
             .assistant = {" ", " {eos}"}},
    Template{.name = "mistral",
             .begin = "{bos}",
             .system_place = System::refused,
             .alternates = true,
             .strips = false,
             .system = {},
             .user = {"[INST] ", " [/INST]"},
             .assistant = {"", "{eos}"}},
    Template{.name = "gemma",
             .begin = "{bos}",
             .system_place = System::refused,
             .alternates = true,
             .strips = true,
             .system = {},
             .user = {"<start_of_turn>user\n", "<end_of_turn>", "\n"},
             .assistant = {"<start_of_turn>model\n", "<end_of_turn>", "\n"}},
    Template{.name = "phi3",
             .end = "{eos}",
             .system_place = System::turn,
             .alternates = false,
             .strips = false,
             .system = {"<|system|>\n", "<|end|>", "\n"},
             .user = {"<|user|>\n", "<|end|>", "\n"},
             .assistant = {"<|assistant|>\n", "<|end|>", "\n"}},
};

// Published texts that mean these, by their checksum; the texts are in tests/text/test_tokenize.py.
struct Known {
  uint64_t checksum;
  std::string_view name;
};
constexpr std::array kKnown = {
    Known{0x2fc195c7aabc1f01, "chatml"},  Known{0x7cb390ad55fd6f2b, "qwen2"},  Known{0xb006218258877376, "qwen2.5"},
    Known{0xfe835300711a47b3, "smollm2"}, Known{0xe52a6fa418c5a026, "llama3"}, Known{0x04bd0159fe41db0a, "llama2"},
    Known{0x717185082863fab1, "mistral"}, Known{0x31c08529ee6f911f, "gemma"},  Known{0x4613e864aa3598ca, "phi3"},
};

[[noreturn]] void refuse(std::string what, std::string got = {}) {
  throw Error(ErrorCode::invalid_argument, {.where = "chat template", .what = std::move(what), .got = std::move(got)});
}

const Template& find(std::string_view name) {
  return *std::find_if(kTemplates.begin(), kTemplates.end(), [&](const Template& known) { return known.name == name; });
}

// As Python's str.strip().
std::string_view stripped(std::string_view text) {
  const auto space = [](char32_t code) { return is_white_space(code) || (code >= 0x1C && code <= 0x1F); };
  while (!text.empty() && space(utf8_step(text, 0).code)) text.remove_prefix(utf8_length(text[0]));
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    at += step.length;
    if (!space(step.code)) end = at;
  }
  return text.substr(0, end);
}

// One conversation under way.
class Rendering {
 public:
  Rendering(const Template& used, const std::string& bos, const std::string& eos) : used_(used), bos_(bos), eos_(eos) {}

  RenderedChat render(std::span<const ChatMessage> messages) {
    put(used_.begin);
    std::string question;  // what stands before the first one
    if (messages[0].role == "system") {
      if (used_.system_place == System::refused) refuse("it has no place for a system message");
      if (used_.system_place == System::turn) say(used_.system, messages[0].content);
      if (used_.system_place == System::in_first_question)
        question = std::string(used_.system.before) + messages[0].content + std::string(used_.system.after);
      messages = messages.subspan(1);
    } else if (!used_.default_system.empty()) {
      say(used_.system, used_.default_system);
    }
    bool users_turn = true;
    for (const ChatMessage& message : messages) {
      const bool user = message.role == "user";
      if (used_.alternates && user != users_turn) refuse("user and assistant do not take turns");
      users_turn = !user;
      add(message, question, &message == &messages.back());
      question.clear();
    }
    put(used_.end);
    return std::move(chat_);
  }

 private:
  void add(const ChatMessage& message, const std::string& question, bool last) {
    if (message.role == "user") {
      say(used_.user, question + message.content);
    } else if (message.role == "assistant") {
      std::string_view words = message.content;
      const bool thinks = !used_.last_thought.empty();
      if (thinks && words.find("</think>") != std::string_view::npos) refuse("it has no place for thoughts");
      put(used_.assistant.before);
      if (thinks && last) {
        put(used_.last_thought);
        words.remove_prefix(std::min(words.find_first_not_of('\n'), words.size()));
      }
      const size_t begin = chat_.text.size();
      put_words(words);
      put(used_.assistant.after);
      chat_.answers.push_back({begin, chat_.text.size()});
      put(used_.assistant.rest);
    } else if (message.role == "system" && used_.system_place == System::turn) {
      say(used_.system, message.content);
    } else {
      refuse("it has no place for this role", message.role);
    }
  }
  void say(const Turn& turn, std::string_view words) {
    put(turn.before);
    put_words(words);
    put(turn.after);
    put(turn.rest);
  }
  void put_words(std::string_view words) { chat_.text += used_.strips ? stripped(words) : words; }
  void put(std::string_view text) {
    for (const auto& [mark, token] :
         {std::pair<std::string_view, const std::string&>("{bos}", bos_), {"{eos}", eos_}}) {
      const size_t at = text.find(mark);
      if (at == std::string_view::npos) continue;
      chat_.text.append(text.substr(0, at)).append(token).append(text.substr(at + mark.size()));
      return;
    }
    chat_.text += text;
  }

  const Template& used_;
  const std::string &bos_, &eos_;
  RenderedChat chat_;
};

// "</s>", or {"content": "</s>", …}
std::string token_of(const Json& config, const char* key, const std::string& where) {
  const Json* value = config.find(key);
  if (value != nullptr && value->is_object()) value = value->find("content");
  return value == nullptr || value->is_null() ? std::string() : value->string(where + ", " + key);
}

}  // namespace

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> all;
  for (const Template& known : kTemplates) all.emplace_back(known.name);
  return all;
}

ChatTemplate ChatTemplate::named(const std::string& name) {
  const std::vector<std::string> all = names();
  if (std::find(all.begin(), all.end(), name) == all.end()) {
    throw Error(ErrorCode::invalid_argument, {.where = "chat template",
                                              .what = "there is none of this name",
                                              .expected = fmt::format("{}", fmt::join(all, ", ")),
                                              .got = name});
  }
  return ChatTemplate(name);
}

std::optional<ChatTemplate> ChatTemplate::recognised(std::string_view jinja) {
  const uint64_t checksum = text_checksum(jinja);
  for (const Known& known : kKnown) {
    if (known.checksum == checksum) return ChatTemplate(std::string(known.name));
  }
  return std::nullopt;
}

RenderedChat ChatTemplate::render(std::span<const ChatMessage> messages, const std::string& bos,
                                  const std::string& eos) const {
  if (messages.empty()) refuse("there are no messages");
  return Rendering(find(name_), bos, eos).render(messages);
}

TokenizerConfig TokenizerConfig::load(const std::filesystem::path& folder) {
  constexpr int64_t kMost = int64_t{64} << 20;
  TokenizerConfig result;
  const std::filesystem::path file = folder / "tokenizer_config.json", jinja = folder / "chat_template.jinja";
  if (std::filesystem::exists(file)) {
    const Json config = Json::parse(read_text_file(file, kMost), file.string());
    result.bos = token_of(config, "bos_token", file.string());
    result.eos = token_of(config, "eos_token", file.string());
    // Some have several, by name, in a list: then none is the one.
    const Json* text = config.find("chat_template");
    if (text != nullptr && text->is_string()) result.chat_template = text->string(file.string());
  }
  if (std::filesystem::exists(jinja)) result.chat_template = read_text_file(jinja, kMost);
  return result;
}

}  // namespace tigon
