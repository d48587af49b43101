#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <memory>

#include "commands.hpp"
#include "screen.hpp"
#include "signals.hpp"
#include "tokenizing.hpp"

namespace tigon::app {

namespace {

struct Flags {
  TokenizeOptions options;
  int64_t train_bpe = 0;
};

int run(const Flags& flags) {
  using Clock = std::chrono::steady_clock;
  TokenizeOptions options = flags.options;
  const CatchSignals signals;
  if (flags.train_bpe > 0) {
    TokenizingBar bar(signals, "counting words");
    const int64_t vocab = train_tokenizer(options.tokenizer, flags.train_bpe, options, std::ref(bar));
    if (vocab == 0) {
      show("stopped; nothing was written\n");
      return signals.exit_code();
    }
    show("{}: a tokenizer of {} tokens\n", (options.tokenizer / "tokenizer.json").string(), vocab);
  }
  const auto begin = Clock::now();
  TokenizingBar bar(signals, "tokenizing");
  const TokenizeReport report = tokenize(options, std::ref(bar));
  if (report.stopped) {
    show("stopped; the same command{} goes on from there\n", flags.train_bpe > 0 ? " without --train-bpe" : "");
    return signals.exit_code();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  show_tokenized(report, options.output);
  const double megabytes = static_cast<double>(report.bytes - report.begun) * 1e-6;
  if (report.begun > 0) show("{:.1f} MB were done by an earlier run; ", static_cast<double>(report.begun) * 1e-6);
  show("{:.1f} MB in {:.1f} s, {:.1f} MB/s; behind each text: {}\n", megabytes, seconds, megabytes / seconds,
       report.end_of_text.empty() ? "nothing" : report.end_of_text);
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, int& exit_code) {
  CLI::App* tokenize = app.add_subcommand("tokenize", "Texts and chats into a token file");
  const auto flags = std::make_shared<Flags>();
  TokenizeOptions& options = flags->options;
  tokenize->add_option("inputs", options.inputs, "Text, or JSON lines (.jsonl)")->type_name("FILE")->required();
  tokenize->add_option("--tokenizer", options.tokenizer, "A model's folder, or its tokenizer.json")
      ->type_name("FOLDER")
      ->required();
  tokenize->add_option("--output", options.output, "The token file, for tigon train --data")
      ->type_name("FILE")
      ->required();
  tokenize
      ->add_option("--train-bpe", flags->train_bpe,
                   "First make a tokenizer of so many tokens, of the input's bytes, and write it to the folder")
      ->type_name("N")
      ->check(CLI::Range(259, 1 << 22));
  add_chat_options(*tokenize, options);
  tokenize
      ->add_option("--end-of-text", options.end_of_text,
                   "The token behind each text, or none. Without it the folder's eos_token")
      ->type_name("TOKEN");
  tokenize->add_option("--text-field", options.text_field, "Where a line of JSON has its text")
      ->type_name("NAME")
      ->capture_default_str();
  tokenize->add_option("--threads", options.threads, "As many as there are cores, where it is 0")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  tokenize->footer(
      "\nExample:  tigon tokenize book.txt --train-bpe 4096 --tokenizer words --output book.bin\n"
      "          tigon tokenize chats.jsonl --tokenizer Qwen2-0.5B-Instruct --template qwen2 --output chats.bin\n"
      "docs/training.md says what a line may hold.");
  tokenize->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace tigon::app
