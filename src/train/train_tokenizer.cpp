#include <fmt/format.h>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/text/bpe_trainer.hpp"
#include "tigon/text/tokenizer.hpp"
#include "tigon/train/tokenize.hpp"
#include "train/corpus_workers.hpp"
#include "train/sample_text.hpp"

namespace tigon {

namespace {

// Counts the words of a piece. What is no text is said when the corpus is tokenized.
class PieceCounter {
 public:
  explicit PieceCounter(const SampleRules& rules) : rules_(&rules) {}

  bool operator()(const CorpusPiece& piece) {
    if (!piece.lines) {
      words.add(piece.text);
      return true;
    }
    for_each_line(piece, [&](std::string_view line, int64_t) {
      try {
        words.add(read_sample(line, *rules_).text);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
      }
    });
    return true;
  }

  WordCounter words;

 private:
  const SampleRules* rules_;
};

}  // namespace

int64_t train_tokenizer(const std::filesystem::path& folder, int64_t vocab, const TokenizeOptions& options,
                        const std::function<bool(int64_t, int64_t)>& progress) {
  const std::filesystem::path file = folder / "tokenizer.json", config_file = folder / "tokenizer_config.json";
  for (const std::filesystem::path& there : {file, config_file}) {
    if (!std::filesystem::exists(there)) continue;
    throw Error(ErrorCode::invalid_argument, {.where = there.string(),
                                              .what = "there is a tokenizer already, and models may need it",
                                              .fix = "Choose a new folder, or use this one without --train-bpe."});
  }
  const SampleRules rules{
      .chat = ChatTemplate::named("chatml"), .bos = {}, .eos = {}, .text_field = options.text_field};
  Corpus corpus(options.inputs);
  std::vector<PieceCounter> workers;
  for (size_t i = 0; i < worker_count(options.threads); ++i) workers.emplace_back(rules);
  if (!work_through(corpus, workers, progress, [](bool) {})) return 0;
  for (size_t i = 1; i < workers.size(); ++i) workers[0].words.add(workers[i].words);
  const std::string tokenizer = train_byte_bpe(workers[0].words, vocab);
  make_folder(folder);
  const Json config(Json::Object{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"eos_token", kTrainedEnd}});
  write_text_file(config_file, config.dump());
  write_text_file(file, tokenizer);
  return Tokenizer::load(file).vocab();
}

}  // namespace tigon
