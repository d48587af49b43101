#include "tokenizing.hpp"

#include <fmt/ranges.h>

#include <cstdlib>
#include <functional>

#include "model_flags.hpp"
#include "screen.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/text/chat_template.hpp"
#include "tigon/text/tokenizer.hpp"
#include "tigon/train/data.hpp"

namespace tigon::app {

namespace fs = std::filesystem;

bool TokenizingBar::operator()(int64_t done, int64_t total) {
  constexpr int kParts = 1000;
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  progress_.show(static_cast<int>(share * kParts), kParts, what_);
  if (done == total) progress_.clear();
  return !signals_.stop();
}

void add_tokenizer(CLI::App& command, fs::path& folder, const std::string& help) {
  const auto lacks = [](const std::string& path) {
    std::error_code none;
    return fs::exists(fs::path(path) / "tokenizer.json", none) ? "" : "there is no tokenizer.json in " + path;
  };
  command.add_option("--tokenizer", folder, help)->type_name("FOLDER")->check(lacks, "");
}

void add_chat_options(CLI::App& command, TokenizeOptions& options) {
  command
      .add_option(
          "--template", options.chat_template,
          fmt::format("How chats are written: {}. Without it the folder's, where that is a published one of these",
                      fmt::join(ChatTemplate::names(), ", ")))
      ->type_name("NAME");
  add_word(command, "--loss-on", "What is learnt of chats, prompts and instructions: the answers, or all", "completion",
           [&options](const std::string& text) { options.learn_all = text == "all"; })
      ->check(CLI::IsMember({"completion", "all"}));
}

void show_tokenized(const TokenizeReport& report, const fs::path& output) {
  for (const TokenizeReport::Dropped& dropped : report.dropped) {
    std::string places;
    for (const std::string& place : dropped.first) places += (places.empty() ? "" : ", ") + place;
    const bool all = static_cast<int64_t>(dropped.first.size()) == dropped.lines;
    show("dropped {} line{}: {} ({}{})\n", dropped.lines, dropped.lines == 1 ? "" : "s", harmless(dropped.why), places,
         all ? "" : ", …");
  }
  if (report.repaired > 0)
    show("{} pieces of text have bytes that are no UTF-8; each counts as U+FFFD\n", report.repaired);
  if (report.tokens == 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = output.string(), .what = "nothing is left of the input, and nothing was written"});
  }
  show("{}: {} tokens of {} document{}, a vocabulary of {}; {} of them are learnt\n", output.string(), report.tokens,
       report.documents, report.documents == 1 ? "" : "s", report.vocab, report.learnt);
}

namespace {

fs::path cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? fs::path() : fs::path(value);
  };
  if (const fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "tigon";
  if (const fs::path home = variable("HOME"); !home.empty()) return home / ".cache" / "tigon";
  return fs::temp_directory_path() / "tigon-cache";
}

}  // namespace

int tokenize_data(fs::path& data, const ModelConfig& model, TokenizeOptions how) {
  const fs::path& tokenizer = how.tokenizer;
  if (data.empty() || tokenizer.empty() || !fs::exists(tokenizer / "tokenizer.json")) return 0;
  if (!TokenFile(data).is_text()) return 0;
  if (const int64_t vocab = Tokenizer::load(tokenizer).vocab(); vocab > model.vocab) {
    throw Error(ErrorCode::invalid_argument, {.where = (tokenizer / "tokenizer.json").string(),
                                              .what = "this tokenizer is not the model's: it has more tokens",
                                              .expected = "at most " + std::to_string(model.vocab),
                                              .got = std::to_string(vocab)});
  }
  how.inputs = {data};
  // A text without an end is still a text.
  if (TokenizerConfig::load(tokenizer).eos.empty()) how.end_of_text = "none";
  const fs::path folder = cache_folder();
  how.output = folder / fmt::format("{}-{}.tokens", data.filename().string(), tokenize_key(how));
  if (fs::exists(how.output)) {
    show("{} as tokens: {}, of an earlier run\n", data.string(), how.output.string());
  } else {
    make_folder(folder);
    const CatchSignals signals;
    TokenizingBar bar(signals, "tokenizing");
    const TokenizeReport report = tokenize(how, std::ref(bar));
    if (report.stopped) {
      show("Stopped; the same command goes on with it.\n");
      return signals.exit_code();
    }
    show_tokenized(report, how.output);
  }
  data = how.output;
  return 0;
}

}  // namespace tigon::app
