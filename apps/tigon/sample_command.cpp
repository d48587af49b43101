#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <span>

#include "answer.hpp"
#include "chat.hpp"
#include "commands.hpp"
#include "frozen_flags.hpp"
#include "screen.hpp"
#include "signals.hpp"
#include "tigon/core/error.hpp"
#include "tigon/generate/continuation.hpp"
#include "tigon/memory/sizes.hpp"
#include "tigon/storage/files.hpp"
#include "tokenizing.hpp"

namespace tigon::app {

namespace {

using Clock = std::chrono::steady_clock;

struct SampleFlags {
  FrozenFlags frozen;
  std::filesystem::path tokenizer;  // a folder; empty: the model's
  std::string prompt;
  std::filesystem::path prompts;
  int64_t batch = 8;
  int64_t tokens = 0;  // 0: kUsual, or what the model has room for
  std::vector<std::string> stops;
  bool to_the_end = false;
  bool chats = false;
  std::string chat_template, system;
  int64_t context = 4096;  // of a dialogue
  ContinueOptions options{};

  const std::filesystem::path& words_from() const { return tokenizer.empty() ? frozen.model : tokenizer; }
};

constexpr int64_t kUsual = 200;
constexpr int64_t kMostPrompts = int64_t{1} << 30;  // bytes

std::vector<std::string> prompt_texts(const SampleFlags& flags) {
  if (flags.prompts.empty()) return {flags.prompt};
  std::vector<std::string> texts;
  const std::string all = read_text_file(flags.prompts, kMostPrompts);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    const bool windows = end > begin && all[end - 1] == '\r';
    if (std::string text = all.substr(begin, end - begin - (windows ? 1 : 0)); !text.empty())
      texts.push_back(std::move(text));
    begin = end + 1;
  }
  if (!texts.empty()) return texts;
  throw Error(
      ErrorCode::invalid_argument,
      {.where = flags.prompts.string(), .what = "there is no prompt in this file", .expected = "one on each line"});
}

// How many tokens each prompt may get: what was asked for, or what the model has room for behind the longest.
int64_t room(const SampleFlags& flags, const ModelConfig& model, int64_t longest) {
  if (flags.tokens > 0) return flags.tokens;
  return std::clamp<int64_t>(model.longest_sequence() - longest, 1, kUsual);
}

int run_chat(SampleFlags& flags, const ModelConfig& model, const ModelText& words) {
  const ChatStyle style(flags.chat_template, flags.words_from());
  check_sampling(flags.options.sampling);
  const int64_t context = std::min(flags.context, model.longest_sequence());
  Generator generator(model, flags.frozen.settled(), 1, context);
  flags.frozen.load_into(generator);
  flags.options.end_tokens = end_tokens(flags.frozen.model);
  return chat(generator, words, style, flags.system, flags.tokens > 0 ? flags.tokens : context, flags.options);
}

int run(SampleFlags& flags) {
  const ModelConfig model = flags.frozen.model_config();
  const ModelText words(model, flags.words_from());
  if (flags.chats) return run_chat(flags, model, words);
  const std::vector<std::string> texts = prompt_texts(flags);
  std::vector<std::vector<int32_t>> prompts;
  size_t longest = 0;
  for (const std::string& text : texts) {
    prompts.push_back(words.encode(text));
    longest = std::max(longest, prompts.back().size());
    if (!prompts.back().empty()) continue;
    throw Error(ErrorCode::invalid_argument, {.where = "--prompt",
                                              .what = "there is nothing to continue",
                                              .fix = "Give --prompt TEXT, or --prompts FILE with one on each line."});
  }
  check_sampling(flags.options.sampling);
  flags.options.tokens = room(flags, model, static_cast<int64_t>(longest));
  if (!flags.to_the_end) flags.options.end_tokens = end_tokens(flags.frozen.model);
  const auto batch = std::min(flags.batch, static_cast<int64_t>(prompts.size()));
  Generator generator(model, flags.frozen.settled(), batch, static_cast<int64_t>(longest) + flags.options.tokens);
  flags.frozen.load_into(generator);

  const CatchSignals signals;
  const bool lines = !flags.prompts.empty();
  std::vector<Answer> answers;
  for (const auto& prompt : prompts) answers.emplace_back(words, prompt, flags.stops);
  std::vector<std::string> shown(texts.size());
  size_t written = 0;
  // The results of a file, in its order, as soon as all before them are there.
  const auto write_up_to = [&](size_t end) {
    for (; written < end; ++written)
      show("{}\n", continuation_line(texts[written], shown[written] + answers[written].finish()));
  };
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  if (!lines) show("{}", texts[0]);
  int64_t count = 0;
  const Clock::time_point begin = Clock::now();
  continue_prompts(generator, prompts, flags.options, [&](size_t prompt, int32_t token) {
    if (lines) write_up_to(prompt / static_cast<size_t>(batch) * static_cast<size_t>(batch));
    ++count;
    const std::string text = answers[prompt].push(token);
    lines ? void(shown[prompt] += text) : show("{}", terminal ? harmless(text) : text);
    return !answers[prompt].stopped() && !signals.stop();
  });
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (lines) {
    write_up_to(signals.stop() ? written : texts.size());
  } else {
    const std::string rest = answers[0].finish();
    show("{}\n", terminal ? harmless(rest) : rest);
  }
  const FrozenBytes bytes = generator.bytes();
  const std::string said = fmt::format("\n{} tokens, {:.1f} a second; {}: weights {}, keys and values {}\n", count,
                                       static_cast<double>(count) / std::max(seconds, 1e-9), human_bytes(bytes.all()),
                                       human_bytes(bytes.weights), human_bytes(bytes.cache));
  (void)std::fputs(said.c_str(), stderr);
  return signals.stop() ? signals.exit_code() : 0;
}

}  // namespace

void add_sample(CLI::App& app, int& exit_code) {
  CLI::App* sample = app.add_subcommand("sample", "Let a model go on with a text");
  const auto flags = std::make_shared<SampleFlags>();
  flags->frozen.add_to(*sample);
  SamplingOptions& sampling = flags->options.sampling;
  sampling.temperature = 0.8;
  add_tokenizer(*sample, flags->tokenizer,
                "A folder with the tokenizer.json, where the model's has none, as a checkpoint");
  sample->option_defaults()->group("Text");
  CLI::Option* prompt = sample->add_option("--prompt", flags->prompt, "What the text begins with")->type_name("TEXT");
  CLI::Option* prompts =
      sample
          ->add_option("--prompts", flags->prompts, "Or a file with a prompt on each line: each becomes a line of JSON")
          ->type_name("FILE")
          ->check(CLI::ExistingFile)
          ->excludes(prompt);
  sample->add_option("--batch", flags->batch, "Prompts of a file that are continued at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  sample
      ->add_option("--tokens", flags->tokens,
                   "At most so many for each prompt; without it 200, as far as there is room")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->type_name("N");
  sample->add_option("--stop", flags->stops, "End before this text; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sample->add_flag("--ignore-end", flags->to_the_end, "Go on behind the model's own end of a text");
  sample->option_defaults()->group("Dialogue");
  CLI::Option* chats = sample->add_flag("--chat", flags->chats, "Talk: each line of standard input gets an answer")
                           ->excludes(prompt)
                           ->excludes(prompts);
  sample
      ->add_option("--template", flags->chat_template,
                   fmt::format("How the model is spoken to: {}. Without it as its folder says, where that is one of "
                               "these",
                               fmt::join(ChatTemplate::names(), ", ")))
      ->type_name("NAME")
      ->needs(chats);
  sample->add_option("--system", flags->system, "What it is told first")->type_name("TEXT")->needs(chats);
  sample->add_option("--context", flags->context, "Tokens of a dialogue at most, as far as the model has room")
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 24))
      ->capture_default_str();
  sample->option_defaults()->group("Choice of tokens");
  sample
      ->add_option("--temperature", sampling.temperature,
                   "Below 1 likely tokens come more often; 0: always the most likely one")
      ->capture_default_str();
  sample->add_option("--top-k", sampling.top_k, "Of the N most likely tokens alone; 0: of all")
      ->type_name("N")
      ->capture_default_str();
  sample->add_option("--top-p", sampling.top_p, "Of the fewest tokens whose probabilities come to this")
      ->capture_default_str();
  sample->add_option("--seed", sampling.seed, "The same seed gives the same text")->capture_default_str();
  sample->footer(
      "\nThe text goes to standard output as it comes, how fast it came to standard error.\n\nExamples:\n"
      "  tigon sample --model trained --prompt \"It is a truth\"\n"
      "  tigon sample --model Llama-3.2-1B --adapters adapters --device cuda --prompts questions.txt > answers.jsonl\n"
      "  tigon sample --model SmolLM2-135M-Instruct --chat");
  sample->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace tigon::app
