#include "tigon/train/tokenize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "text/utf8.hpp"
#include "tigon/core/error.hpp"
#include "tigon/text/tokenizer.hpp"
#include "tigon/train/data.hpp"
#include "train/corpus_workers.hpp"
#include "train/sample_text.hpp"

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
  std::vector<std::pair<std::string, std::string>> dropped;  // why, where
  int64_t repaired = 0;
};

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
    if (piece.lines) {
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
        out_.dropped.emplace_back(error.what(), fmt::format("{}:{}", piece.file, line));
      }
    });
  }

  void encode_sample(const SampleText& sample) {
    const size_t first = out_.ids.size();
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
    for (const auto& [why, where] : piece.dropped) drop(why, where);
  }

 private:
  void drop(const std::string& why, const std::string& where) {
    constexpr size_t kFirst = 5, kReasons = 20;  // which may have the line's own words
    const bool known = index_.contains(why) || index_.size() < kReasons;
    const auto [at, added] = index_.try_emplace(known ? why : "other reasons", report_.dropped.size());
    if (added) report_.dropped.push_back({.why = at->first, .first = {}});
    TokenizeReport::Dropped& dropped = report_.dropped[at->second];
    ++dropped.lines;
    if (dropped.first.size() < kFirst) dropped.first.push_back(where);
  }

  TokenFileWriter& writer_;
  TokenizeReport& report_;
  std::map<std::string, size_t> index_;
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
  Corpus corpus(options.inputs);
  std::vector<PieceEncoder> workers;
  for (size_t i = 0; i < worker_count(options.threads); ++i) workers.emplace_back(tokenizer, rules);
  TokenFileWriter writer(options.output, report.vocab);
  Collector collector(writer, report);
  report.bytes = corpus.bytes();
  report.stopped = !work_through(corpus, workers, progress, [&](const Encoded& piece) { collector.add(piece); });
  if (report.stopped) return report;
  report.tokens = writer.tokens();
  report.learnt = writer.learnt();
  if (report.tokens > 0) writer.finish();
  return report;
}

}  // namespace tigon
