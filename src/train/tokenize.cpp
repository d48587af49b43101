#include "tigon/train/tokenize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "text/utf8.hpp"
#include "tigon/core/error.hpp"
#include "tigon/text/tokenizer.hpp"
#include "tigon/train/data.hpp"
#include "train/corpus_workers.hpp"
#include "train/sample_text.hpp"
#include "train/tokenize_journal.hpp"

namespace tigon {

namespace fs = std::filesystem;

namespace {

// What became of a piece of the corpus.
struct Encoded {
  struct Document {
    size_t tokens;
    bool begins;
  };
  std::vector<int32_t> ids;
  std::vector<bool> learnt;
  std::vector<Document> documents;
  std::vector<TokenizeReport::Dropped> dropped;
  int64_t repaired = 0;
};

void drop(std::vector<TokenizeReport::Dropped>& all, const TokenizeReport::Dropped& more) {
  constexpr size_t kFirst = 5, kReasons = 20;  // which may have the line's own words
  const auto find = [&](const std::string& why) {
    return std::find_if(all.begin(), all.end(), [&](const auto& known) { return known.why == why; });
  };
  auto at = find(more.why);
  if (at == all.end()) {
    const std::string why = all.size() < kReasons ? more.why : "other reasons";
    at = find(why);
    if (at == all.end()) at = all.insert(at, {.why = why, .first = {}});
  }
  at->lines += more.lines;
  for (const std::string& place : more.first) {
    if (at->first.size() < kFirst) at->first.push_back(place);
  }
}

struct Rules {
  SampleRules sample;
  bool learn_all = false;
  std::optional<int32_t> end;
};

// One per thread.
class PieceEncoder {
 public:
  PieceEncoder(const Tokenizer& tokenizer, const Rules& rules)
      : tokenizer_(tokenizer), rules_(&rules), encoder_(tokenizer) {}

  Encoded operator()(const CorpusPiece& piece) {
    out_ = {};
    if (piece.too_long) {
      drop_line(fmt::format("the line is longer than {} MiB", kLongestLine >> 20), piece, piece.first_line);
    } else if (piece.lines) {
      encode_lines(piece);
    } else {
      out_.repaired = valid_utf8(piece.text) == piece.text.size() ? 0 : 1;
      if (piece.begins) append(tokenizer_.prefix());
      encoder_.encode(piece.text, out_.ids, false);
      if (piece.ends) append_end();
      close(0, piece.begins);
    }
    return std::move(out_);
  }

 private:
  void append(std::span<const int32_t> ids) { out_.ids.insert(out_.ids.end(), ids.begin(), ids.end()); }
  void append_end() {
    append(tokenizer_.suffix());
    const bool there = !tokenizer_.suffix().empty() && tokenizer_.suffix().back() == rules_->end;
    if (rules_->end && !there) out_.ids.push_back(*rules_->end);
  }
  // A document of all ids from `first` on.
  void close(size_t first, bool begins) {
    if (out_.ids.size() == first) return;
    out_.learnt.resize(out_.ids.size(), true);
    out_.documents.push_back({out_.ids.size() - first, begins});
  }

  void encode_lines(const CorpusPiece& piece) {
    for_each_line(piece, [&](std::string_view text, int64_t line) {
      try {
        encode_sample(read_sample(text, rules_->sample));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
        drop_line(error.what(), piece, line);
      }
    });
  }
  void drop_line(std::string why, const CorpusPiece& piece, int64_t line) {
    constexpr size_t kLongest = 200;
    if (why.size() > kLongest) why.resize(kLongest);
    drop(out_.dropped, {.why = std::move(why), .lines = 1, .first = {fmt::format("{}:{}", piece.file, line)}});
  }

  void encode_sample(const SampleText& sample) {
    const size_t first = out_.ids.size();
    out_.repaired += sample.repaired ? 1 : 0;
    // A template says itself what a chat begins with.
    if (sample.kind != SampleText::Kind::chat) append(tokenizer_.prefix());
    std::vector<size_t> marks;
    for (const RenderedChat::Range& answer : sample.answers) marks.insert(marks.end(), {answer.begin, answer.end});
    const std::vector<size_t> places = encoder_.encode_with_marks(sample.text, marks, out_.ids);
    if (sample.kind != SampleText::Kind::chat) append_end();
    const bool all = rules_->learn_all || sample.kind == SampleText::Kind::text;
    out_.learnt.resize(out_.ids.size(), all);
    for (size_t i = 0; i + 1 < places.size(); i += 2) {
      // Of a prompt's answer the end of the text is a part.
      const size_t end = sample.kind == SampleText::Kind::prompt ? out_.ids.size() : places[i + 1];
      std::fill(out_.learnt.begin() + static_cast<std::ptrdiff_t>(places[i]),
                out_.learnt.begin() + static_cast<std::ptrdiff_t>(end), true);
    }
    close(first, true);
  }

  Tokenizer tokenizer_;
  const Rules* rules_;
  TextEncoder encoder_;
  Encoded out_;
};

// Takes what comes from the workers to the file and the report.
class Collector {
 public:
  Collector(TokenFileWriter& writer, TokenizeReport& report) : writer_(writer), report_(report) {}

  void add(const Encoded& piece) {
    size_t at = 0;
    for (const Encoded::Document& document : piece.documents) {
      const auto first = piece.learnt.begin() + static_cast<std::ptrdiff_t>(at);
      const std::vector<bool> learnt(first, first + static_cast<std::ptrdiff_t>(document.tokens));
      writer_.add(std::span(piece.ids).subspan(at, document.tokens), learnt, document.begins);
      at += document.tokens;
      report_.documents += document.begins ? 1 : 0;
    }
    report_.repaired += piece.repaired;
    for (const TokenizeReport::Dropped& dropped : piece.dropped) drop(report_.dropped, dropped);
  }

 private:
  TokenFileWriter& writer_;
  TokenizeReport& report_;
};

std::optional<ChatTemplate> template_of(const TokenizeOptions& options, const TokenizerConfig& config) {
  if (!options.chat_template.empty()) return ChatTemplate::named(options.chat_template);
  return ChatTemplate::recognised(config.chat_template);
}

std::optional<int32_t> end_of(const Tokenizer& tokenizer, const TokenizeOptions& options, std::string& name) {
  if (options.end_of_text == "none") {
    name.clear();
    return std::nullopt;
  }
  if (!options.end_of_text.empty()) name = options.end_of_text;
  const std::optional<int32_t> id = name.empty() ? std::nullopt : tokenizer.token_to_id(name);
  if (id) return id;
  throw Error(ErrorCode::invalid_argument,
              {.where = "end of text (--end-of-text)",
               .what = name.empty() ? "the tokenizer's folder names no eos_token" : "the tokenizer has no such token",
               .got = name,
               .fix = "Name the token that stands behind each text, or none for no token."});
}

// The input is not written over: it may be all that there is of it.
void refuse_to_replace(const fs::path& input, const fs::path& output) {
  std::error_code none;
  if (!fs::equivalent(input, output, none)) return;
  throw Error(ErrorCode::invalid_argument, {.where = output.string(),
                                            .what = "the output would take the place of an input",
                                            .fix = "Choose another name for it."});
}

}  // namespace

TokenizeReport tokenize(const TokenizeOptions& options, const std::function<bool(int64_t, int64_t)>& progress) {
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  const fs::path folder = fs::is_directory(options.tokenizer) ? options.tokenizer : options.tokenizer.parent_path();
  const TokenizerConfig config = TokenizerConfig::load(folder);
  TokenizeReport report;
  report.vocab = tokenizer.vocab();
  report.end_of_text = config.eos;
  Rules rules;
  rules.sample = {
      .chat = template_of(options, config), .bos = config.bos, .eos = config.eos, .text_field = options.text_field};
  rules.learn_all = options.learn_all;
  rules.end = end_of(tokenizer, options, report.end_of_text);
  for (const fs::path& input : options.inputs) refuse_to_replace(input, options.output);
  Corpus corpus(options.inputs);
  std::vector<PieceEncoder> workers;
  for (size_t i = 0; i < worker_count(options.threads); ++i) workers.emplace_back(tokenizer, rules);
  const fs::path journal_file = options.output.string() + ".resume";
  TokenizeJournal journal{.key = tokenize_key(options), .place = {}, .mark = {}, .report = {}};
  if (const auto before = read_journal(journal_file, journal.key)) {
    journal = *before;
    corpus.seek(journal.place);
    report.documents = journal.report.documents;
    report.repaired = journal.report.repaired;
    report.dropped = journal.report.dropped;
    report.begun = journal.place.done;
  }
  TokenFileWriter writer(options.output, report.vocab, journal.mark);
  Collector collector(writer, report);
  report.bytes = corpus.bytes();
  auto saved = std::chrono::steady_clock::now();
  const auto save_now_and_then = [&](int64_t done, int64_t total) {
    const bool goes_on = progress(done, total);
    const auto now = std::chrono::steady_clock::now();
    if (!goes_on || now - saved > std::chrono::seconds(30)) {
      journal.place = corpus.place();
      journal.mark = writer.mark();
      journal.report = report;
      write_journal(journal_file, journal);
      saved = now;
    }
    return goes_on;
  };
  report.stopped =
      !work_through(corpus, workers, save_now_and_then, [&](const Encoded& piece) { collector.add(piece); });
  if (report.stopped) return report;
  report.tokens = writer.tokens();
  report.learnt = writer.learnt();
  report.tokens > 0 ? writer.finish() : writer.discard();
  std::error_code none;
  fs::remove(journal_file, none);
  return report;
}

}  // namespace tigon
