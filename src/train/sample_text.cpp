#include "train/sample_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "json/json.hpp"
#include "text/utf8.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

[[noreturn]] void drop(std::string why, std::string got = {}) {
  throw Error(ErrorCode::invalid_argument, {.where = {}, .what = std::move(why), .got = std::move(got)});
}

const std::string& text_of(const Json& sample, const char* key) {
  const Json* value = sample.find(key);
  if (value == nullptr || !value->is_string()) drop(std::string("\"") + key + "\" is no text");
  return value->string(key);
}

// Null says that there is none.
bool has(const Json& sample, std::string_view key) {
  const Json* value = sample.find(key);
  return value != nullptr && !value->is_null();
}

// A text, or a list of parts of which all are texts.
std::string content_of(const Json& message, const char* key) {
  const Json* value = message.find(key);
  if (value == nullptr || !value->is_array()) return text_of(message, key);
  std::string all;
  for (const Json& part : value->array(key)) {
    const Json* type = part.find("type");
    if (type == nullptr || !type->is_string() || type->string(key) != "text") drop("a message is not of text alone");
    all += text_of(part, "text");
  }
  return all;
}

std::string role_of(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, const char*>, 4> kOthers = {
      {{"human", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"model", "assistant"}}};
  for (const auto& [other, role] : kOthers) {
    if (name == other) return role;
  }
  return name;
}

SampleText chat_of(const std::vector<ChatMessage>& messages, const SampleRules& rules) {
  if (!rules.chat) {
    // No fault of the line's: all chats would be lost.
    throw Error(ErrorCode::unsupported,
                {.where = "chat template (--template)",
                 .what = "there is a chat, and the tokenizer's folder has no template that is known",
                 .expected = fmt::format("{}", fmt::join(ChatTemplate::names(), ", ")),
                 .fix = "Name the one that the model was trained with, or is to be."});
  }
  RenderedChat chat = rules.chat->render(messages, rules.bos, rules.eos);
  if (chat.answers.empty()) drop("nobody answers in this chat");
  return {SampleText::Kind::chat, std::move(chat.text), std::move(chat.answers)};
}

SampleText chat_in(const Json& list, const char* role, const char* content, const SampleRules& rules) {
  if (!list.is_array()) drop("the chat is no list");
  std::vector<ChatMessage> messages;
  for (const Json& message : list.array("")) {
    // What was called and what it returned would be lost.
    if (has(message, "tool_calls")) drop("a message calls tools");
    messages.push_back({role_of(text_of(message, role)), content_of(message, content)});
  }
  return chat_of(messages, rules);
}

SampleText prompted(const std::string& prompt, const std::string& answer) {
  if (answer.empty()) drop("the answer is empty");
  return {SampleText::Kind::prompt, prompt + answer, {{prompt.size(), prompt.size() + answer.size()}}};
}

SampleText instructed(const Json& sample, const SampleRules& rules) {
  const std::string &instruction = text_of(sample, "instruction"), &answer = text_of(sample, "output");
  const std::string input = has(sample, "input") ? text_of(sample, "input") : std::string();
  if (rules.chat) {
    const std::string question = input.empty() ? instruction : instruction + "\n\n" + input;
    return chat_of({{"user", question}, {"assistant", answer}}, rules);
  }
  // The words that Alpaca was trained with.
  const std::string task = "Below is an instruction that describes a task";
  const std::string request =
      "Write a response that appropriately completes the request.\n\n### Instruction:\n" + instruction;
  const std::string prompt = input.empty() ? task + ". " + request
                                           : task + ", paired with an input that provides further context. " + request +
                                                 "\n\n### Input:\n" + input;
  return prompted(prompt + "\n\n### Response:\n", answer);
}

SampleText sample_in(const Json& sample, const SampleRules& rules) {
  if (!sample.is_object()) drop("the line is no JSON object");
  if (has(sample, "messages")) return chat_in(*sample.find("messages"), "role", "content", rules);
  if (has(sample, "conversations")) return chat_in(*sample.find("conversations"), "from", "value", rules);
  if (has(sample, "prompt") && has(sample, "completion"))
    return prompted(text_of(sample, "prompt"), text_of(sample, "completion"));
  if (has(sample, "instruction") && has(sample, "output")) return instructed(sample, rules);
  if (!has(sample, rules.text_field)) drop("it has none of the known fields");
  std::string text = text_of(sample, rules.text_field.c_str());
  if (text.empty()) drop("the text is empty");
  return {SampleText::Kind::text, std::move(text), {}};
}

}  // namespace

SampleText read_sample(std::string_view line, const SampleRules& rules) {
  std::string repaired;
  if (valid_utf8(line) != line.size()) line = repaired = repaired_utf8(line);
  Json json;
  try {
    json = Json::parse(line, "");
  } catch (const Error&) {
    drop("the line is not JSON");
  }
  SampleText sample = sample_in(json, rules);
  sample.repaired = !repaired.empty();
  return sample;
}

}  // namespace tigon
