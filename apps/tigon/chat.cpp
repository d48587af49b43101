#include "chat.hpp"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <vector>

#include "answer.hpp"
#include "screen.hpp"
#include "signals.hpp"
#include "tigon/core/error.hpp"

namespace tigon::app {

namespace {

ChatTemplate template_of(const std::string& name, const std::filesystem::path& folder, const TokenizerConfig& config) {
  if (!name.empty()) return ChatTemplate::named(name);
  if (const auto known = ChatTemplate::recognised(config.chat_template)) return *known;
  throw Error(ErrorCode::invalid_argument,
              {.where = folder.string(),
               .what = config.chat_template.empty() ? "the folder does not say how this model is spoken to"
                                                    : "the folder's chat template is not one of the known",
               .expected = fmt::format("one of {}", fmt::join(ChatTemplate::names(), ", ")),
               .fix = "Name the one that it was trained with by --template."});
}

// What is written before the model's turn, and what it ends its turn with.
struct Turn {
  std::string prompt, ending;
};
Turn turn_of(const ChatStyle& style, std::vector<ChatMessage> said) {
  said.push_back({.role = "assistant", .content = "x"});
  const RenderedChat chat = style.form.render(said, style.bos, style.eos);
  const auto [begin, end] = chat.answers.back();
  Turn turn{.prompt = chat.text.substr(0, begin), .ending = chat.text.substr(begin + 1, end - begin - 1)};
  // Where only a space stands between question and answer, it is of the answer's first token.
  while (turn.prompt.ends_with(' ')) turn.prompt.pop_back();
  return turn;
}

}  // namespace

ChatStyle::ChatStyle(const std::string& name, const std::filesystem::path& folder)
    : form([&] { return template_of(name, folder, TokenizerConfig::load(folder)); }()) {
  const TokenizerConfig config = TokenizerConfig::load(folder);
  bos = config.bos;
  eos = config.eos;
}

int chat(Generator& generator, const ModelText& words, const ChatStyle& style, const std::string& system, int64_t room,
         ContinueOptions options) {
  const bool asks = isatty(STDIN_FILENO) == 1, terminal = isatty(STDOUT_FILENO) == 1;
  std::vector<ChatMessage> said;
  const auto begin_anew = [&] {
    said.clear();
    if (!system.empty()) said.push_back({.role = "system", .content = system});
  };
  begin_anew();
  if (asks) show("A line is a question; /new begins anew, Ctrl-D ends.\n");
  while (true) {
    if (asks) show("\n> ");
    std::string line;
    if (!std::getline(std::cin, line)) return 0;
    if (line == "/new") begin_anew();
    if (line.empty() || line == "/new") continue;
    said.push_back({.role = "user", .content = line});
    const Turn turn = turn_of(style, said);
    const std::vector<int32_t> prompt = words.encode(turn.prompt, false);
    options.tokens = std::min(room, generator.context() - static_cast<int64_t>(prompt.size()));
    if (options.tokens < 1) {
      throw Error(ErrorCode::invalid_argument, {.where = "dialogue",
                                                .what = "it does not fit into the context any more",
                                                .expected = fmt::format("below {} tokens", generator.context()),
                                                .got = std::to_string(prompt.size()),
                                                .fix = "Give more with --context, or begin anew with /new."});
    }
    ++options.sampling.seed;  // another answer to the same question
    const std::vector<std::string> stops = {turn.ending};
    Answer answer(words, prompt, stops);
    ContinueOptions turn_options = options;
    if (const auto end = words.token(turn.ending)) turn_options.end_tokens.push_back(*end);
    std::string whole;
    const auto more = [&](std::string text) {
      if (whole.empty()) text.erase(0, std::min(text.find_first_not_of(" \n"), text.size()));
      whole += text;
      show("{}", terminal ? harmless(text) : text);
    };
    const CatchSignals signals;
    continue_prompts(generator, {prompt}, turn_options, [&](size_t, int32_t token) {
      more(answer.push(token));
      return !answer.stopped() && !signals.stop();
    });
    more(answer.finish());
    show("\n");
    if (signals.stop()) return signals.exit_code();
    said.push_back({.role = "assistant", .content = whole});
  }
}

}  // namespace tigon::app
