#include "tigon/text/bpe_trainer.hpp"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "json/json.hpp"
#include "text/byte_level.hpp"
#include "text/tokenizer_parts.hpp"
#include "text/utf8.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

constexpr std::array kSpecial = {kTrainedEnd, "<|im_start|>", "<|im_end|>"};
constexpr int64_t kLeast = 256 + static_cast<int64_t>(kSpecial.size());

using Pair = uint64_t;  // the ids of both, the left one above

Pair pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}
int32_t left_of(Pair pair) { return static_cast<int32_t>(pair >> 32); }
int32_t right_of(Pair pair) { return static_cast<int32_t>(pair & 0xFFFFFFFFu); }

Json byte_level(bool add_prefix_space) {
  return Json(Json::Object{
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", true}});
}

Json tokenizer_file(Json::Object vocabulary, Json::Array merges) {
  Json::Array added;
  for (size_t i = 0; i < kSpecial.size(); ++i) {
    added.push_back(Json(Json::Object{{"id", static_cast<int64_t>(i)},
                                      {"content", kSpecial[i]},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}}));
  }
  const Json model(Json::Object{{"type", "BPE"},
                                {"dropout", Json()},
                                {"unk_token", Json()},
                                {"continuing_subword_prefix", Json()},
                                {"end_of_word_suffix", Json()},
                                {"fuse_unk", false},
                                {"byte_fallback", false},
                                {"ignore_merges", false},
                                {"vocab", std::move(vocabulary)},
                                {"merges", std::move(merges)}});
  return Json(Json::Object{{"version", "1.0"},
                           {"truncation", Json()},
                           {"padding", Json()},
                           {"added_tokens", std::move(added)},
                           {"normalizer", Json()},
                           {"pre_tokenizer", byte_level(false)},
                           {"post_processor", Json()},
                           {"decoder", byte_level(true)},
                           {"model", model}});
}

// The tokens that there are before anything is learnt: special ones, then bytes, in the order of their characters.
std::vector<std::string> first_tokens() {
  std::vector<std::string> tokens(kSpecial.begin(), kSpecial.end());
  for (int i = 0; i < 256; ++i) tokens.push_back(to_byte_characters(std::string(1, static_cast<char>(i))));
  std::sort(tokens.begin() + kSpecial.size(), tokens.end());  // UTF-8 keeps the order of code points
  return tokens;
}

Json::Object numbered(const std::vector<std::string>& tokens) {
  Json::Object vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary.emplace_back(tokens[i], Json(static_cast<int64_t>(i)));
  return vocabulary;
}

// Learns merges. Counts are kept pair by pair as words change; the queue holds what they were, and whoever comes up
// with an old count goes back with the new one.
class Trainer {
 public:
  Trainer() : tokens_(first_tokens()) {
    for (size_t i = 0; i < tokens_.size(); ++i) ids_.emplace(tokens_[i], static_cast<int32_t>(i));
  }

  void add(const std::string& word, int64_t count) {
    std::vector<int32_t> symbols;
    for (const char byte : word) symbols.push_back(ids_.at(to_byte_characters(std::string(1, byte))));
    const auto index = static_cast<uint32_t>(words_.size());
    for (size_t i = 0; i + 1 < symbols.size(); ++i) note(pair_of(symbols[i], symbols[i + 1]), count, index);
    words_.push_back({std::move(symbols), count});
  }

  Json train(size_t vocab) {
    queue_changes();
    while (tokens_.size() < vocab && !queue_.empty()) {
      Candidate best = queue_.top();
      queue_.pop();
      const int64_t count = counts_.at(best.pair);
      if (count < 1) continue;
      if (best.count != count) {
        best.count = count;
        queue_.push(std::move(best));
        continue;
      }
      merge(best);
      queue_changes();
    }
    Json::Array merges;
    for (const Pair pair : merges_) {
      merges.push_back(
          Json(Json::Array{tokens_[static_cast<size_t>(left_of(pair))], tokens_[static_cast<size_t>(right_of(pair))]}));
    }
    return tokenizer_file(numbered(tokens_), std::move(merges));
  }

 private:
  struct Word {
    std::vector<int32_t> symbols;
    int64_t count;
  };
  struct Candidate {
    int64_t count;
    Pair pair;
    std::vector<uint32_t> words;  // that have it, or had it

    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void note(Pair pair, int64_t count, uint32_t word) {
    counts_[pair] += count;
    std::vector<uint32_t>& words = changed_[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void queue_changes() {
    for (auto& [pair, words] : changed_) {
      if (counts_[pair] > 0) queue_.push({counts_[pair], pair, std::move(words)});
    }
    changed_.clear();
  }

  void merge(const Candidate& best) {
    const std::string text =
        tokens_[static_cast<size_t>(left_of(best.pair))] + tokens_[static_cast<size_t>(right_of(best.pair))];
    const auto [at, added] = ids_.try_emplace(text, static_cast<int32_t>(tokens_.size()));
    if (added) tokens_.push_back(text);
    // A token that comes about in two ways may make a pair anew that was merged before: only its last place counts.
    if (!merged_.insert(best.pair).second) std::erase(merges_, best.pair);
    merges_.push_back(best.pair);
    for (const uint32_t word : best.words) merge_in(word, best.pair, at->second);
  }

  void merge_in(uint32_t index, Pair pair, int32_t merged) {
    auto& [symbols, count] = words_[index];
    std::vector<int32_t> result;
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool here = i + 1 < symbols.size() && pair_of(symbols[i], symbols[i + 1]) == pair;
      if (!here) {
        result.push_back(symbols[i]);
        continue;
      }
      // What stands before is merged already, what follows is not yet.
      if (!result.empty()) {
        counts_[pair_of(result.back(), symbols[i])] -= count;
        note(pair_of(result.back(), merged), count, index);
      }
      result.push_back(merged);
      ++i;
      if (i + 1 < symbols.size()) {
        counts_[pair_of(symbols[i], symbols[i + 1])] -= count;
        note(pair_of(merged, symbols[i + 1]), count, index);
      }
    }
    symbols = std::move(result);
  }

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, int64_t> counts_;
  std::unordered_map<Pair, std::vector<uint32_t>> changed_;
  std::priority_queue<Candidate> queue_;
  std::vector<Pair> merges_;
  std::unordered_set<Pair> merged_;
};

}  // namespace

struct WordCounter::State {
  // The one that is to be, with nothing learnt: it cuts texts as they will be cut.
  const Json file = tokenizer_file(numbered(first_tokens()), {});
  const TokenizerParts parts{Field{file, "tokenizer.json"}};
  RegexScratch regex;
  std::unordered_map<std::string, int64_t> counts;
};

WordCounter::WordCounter() : state_(std::make_unique<State>()) {}
WordCounter::~WordCounter() = default;
WordCounter::WordCounter(WordCounter&&) noexcept = default;
WordCounter& WordCounter::operator=(WordCounter&&) noexcept = default;

void WordCounter::add(std::string_view text) {
  std::string repaired;
  if (valid_utf8(text) != text.size()) text = repaired = repaired_utf8(text);
  std::vector<Section> sections;
  state_->parts.added.find(text, false, sections);
  for (const Section& section : sections) {
    if (section.id >= 0) continue;
    Pieces pieces;
    pieces.text = text.substr(section.begin, section.end - section.begin);
    pieces.ranges = {{0, pieces.text.size()}};
    state_->parts.pre_tokenizer.apply(pieces, state_->regex);
    for (const Pieces::Range& range : pieces.ranges) ++state_->counts[std::string(pieces.piece(range))];
  }
}

void WordCounter::add(const WordCounter& other) {
  for (const auto& [word, count] : other.state_->counts) state_->counts[word] += count;
}

std::string train_byte_bpe(const WordCounter& words, int64_t vocab) {
  constexpr int64_t kMost = int64_t{1} << 22;
  if (vocab < kLeast || vocab > kMost) {
    throw Error(ErrorCode::invalid_argument, {.where = "size of the vocabulary (--train-bpe)",
                                              .what = "the value is out of range",
                                              .expected = std::to_string(kLeast) + " to " + std::to_string(kMost),
                                              .got = std::to_string(vocab)});
  }
  Trainer trainer;
  for (const auto& [word, count] : words.state_->counts) trainer.add(word, count);
  return trainer.train(static_cast<size_t>(vocab)).dump();
}

}  // namespace tigon
