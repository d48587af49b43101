#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <memory>

#include "commands.hpp"
#include "frozen_flags.hpp"
#include "progress.hpp"
#include "screen.hpp"
#include "signals.hpp"
#include "tigon/core/error.hpp"
#include "tigon/generate/evaluator.hpp"
#include "tigon/memory/sizes.hpp"
#include "tokenizing.hpp"

namespace tigon::app {

namespace {

using Clock = std::chrono::steady_clock;

struct EvalFlags {
  FrozenFlags frozen;
  std::filesystem::path data;
  TokenizeOptions words;  // of text; without a tokenizer the model's
  bool bytes = false;
  int64_t batch = 4;
  int64_t seq = 0;  // 0: kUsual, or what the model allows
};

constexpr int64_t kUsual = 1024;

int run(const EvalFlags& flags) {
  const ModelConfig model = flags.frozen.model_config();
  std::filesystem::path data = flags.data;
  TokenizeOptions words = flags.words;
  if (words.tokenizer.empty()) words.tokenizer = flags.frozen.model;
  if (!flags.bytes) {
    if (const int code = tokenize_data(data, model, words); code != 0) return code;
  }
  const TokenFile file(data);
  // The checks of what training is given.
  Sampler(data, {.seq = 1, .vocab = model.vocab, .bytes = flags.bytes}).check_labels();
  const int64_t seq = flags.seq > 0 ? flags.seq : std::min(model.longest_sequence(), kUsual);
  const int64_t rows = (file.tokens() - 1 + seq - 1) / seq;
  Evaluator evaluator(model, flags.frozen.settled(), std::min(flags.batch, rows), seq);
  flags.frozen.load_into(evaluator);

  const CatchSignals signals;
  const Clock::time_point begin = Clock::now();
  Evaluator::Result result;
  {
    Progress progress;
    result = evaluator.evaluate(file, [&](const Evaluator::Result& so_far) {
      progress.show(static_cast<int>(100 * so_far.read / (file.tokens() - 1)), 100,
                    fmt::format("loss {:.4f}", so_far.mean()));
      return !signals.stop();
    });
    progress.clear();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  show("{}loss {:.4f}, perplexity {:.4g}", signals.stop() ? "so far: " : "", result.mean(), std::exp(result.mean()));
  if (model.vocab == 256) show(", {:.4f} bits per byte", result.mean() / std::log(2.0));
  show("; {} tokens in rows of {}, {:.0f} tokens/s, {}\n", result.tokens, seq,
       static_cast<double>(result.tokens) / std::max(seconds, 1e-9), human_bytes(evaluator.bytes().all()));
  return signals.stop() ? signals.exit_code() : 0;
}

}  // namespace

void add_eval(CLI::App& app, int& exit_code) {
  CLI::App* eval = app.add_subcommand("eval", "How well a model foretells a text: loss and perplexity");
  const auto flags = std::make_shared<EvalFlags>();
  flags->frozen.add_to(*eval);
  eval->option_defaults()->group("Data");
  eval->add_option("--data", flags->data, "What tigon train --data takes (tigon help data)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile)
      ->required();
  add_tokenizer(*eval, flags->words.tokenizer, "A folder with the tokenizer.json; without it the model's");
  add_chat_options(*eval, flags->words);
  eval->add_flag("--bytes", flags->bytes, "Take a file's bytes as tokens, whatever the file and the vocabulary are");
  eval->add_option("--batch", flags->batch, "Rows at a time; the result does not depend on it but for rounding")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  eval->add_option("--seq", flags->seq,
                   "Tokens of a row, each of which sees those before it in its row; without it 1024, or what the model "
                   "allows")
      ->check(CLI::Range(int64_t{1}, kLongestSequence))
      ->type_name("N");
  eval->footer("\nExample:  tigon eval --model trained --data data/austen.txt");
  eval->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace tigon::app
