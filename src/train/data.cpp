#include "tigon/train/data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/storage/files.hpp"
#include "train/check_range.hpp"
#include "train/data_format.hpp"
#include "train/token_format.hpp"

namespace tigon {

Sampler::Sampler(const std::filesystem::path& path, const Options& options) : options_(options) {
  check_range("seq", static_cast<double>(options.seq), 1, 1 << 24);
  check_range("vocab", static_cast<double>(options.vocab), 1, static_cast<double>(kLargestVocab));
  check_range("first token", static_cast<double>(options.first_token), 0, 0x1p62);
  check_ignore_index(options.ignore_index);
  // A negative token is nobody's and means that all labels count; one beyond the vocabulary is a slip.
  const auto check_token = [&](const char* where, int64_t token) {
    if (token < options.vocab) return;
    throw Error(ErrorCode::invalid_argument,
                {.where = where,
                 .what = "the token is outside the model's vocabulary",
                 .expected = fmt::format("below {}, or a negative one for none", options.vocab),
                 .got = std::to_string(token)});
  };
  check_token("ignored token (--ignore-token)", options.ignored_token);
  check_token("end of a document (--document-end)", options.document_end);
  const auto without_documents = [&](std::string where, const char* what) {
    throw Error(ErrorCode::invalid_argument, {.where = std::move(where),
                                              .what = what,
                                              .fix = "Make a file that knows its documents with tigon tokenize, or "
                                                     "name the token that ends each with --document-end."});
  };
  if (path.empty() && options.documents_apart)
    without_documents("--documents apart", "random tokens have no documents");
  if (path.empty()) return;
  file_ = std::make_unique<TokenFile>(path);
  if (options.documents_apart && options.document_end < 0 && file_->documents() == 0)
    without_documents(path.string(), "this file does not know its documents");
  if (!options.bytes) refuse_bytes(path, file_->format(), options.vocab);
  if (file_->vocab() > options.vocab) {
    bad_token_file(path, "the data's vocabulary is larger than the model's", "at most " + std::to_string(options.vocab),
                   std::to_string(file_->vocab()));
  }
  if (options_.last_token < 0 || options_.last_token > file_->tokens()) options_.last_token = file_->tokens();
  windows_ = (options_.last_token - options_.first_token - 1) / options_.seq;
  if (options_.last_token - options_.first_token < 2 || windows_ < 1) {
    const bool part = options_.first_token > 0 || options_.last_token < file_->tokens();  // the rest is for evaluation
    bad_token_file(path,
                   "there are too few tokens for one sequence" +
                       (part ? fmt::format(" from token {} to {}", options_.first_token, options_.last_token) : ""),
                   "at least " + std::to_string(options_.seq + 1),
                   std::to_string(std::max<int64_t>(0, options_.last_token - options_.first_token)));
  }
  if (windows_ > int64_t{1} << 31) bad_token_file(path, "there are too many windows for a shuffled order");
}

std::string Sampler::fingerprint() const {
  if (!file_) return "random";
  const int64_t taken = std::min<int64_t>(windows_, 64), each = std::min<int64_t>(options_.seq, 1024);
  std::vector<int32_t> tokens(static_cast<size_t>(taken * each));
  for (int64_t i = 0; i < taken; ++i) {
    const int64_t first = options_.first_token + windows_ * i / taken * options_.seq;
    file_->read(first, each, tokens.data() + i * each);
    const std::vector<bool> learnt = file_->read_mask(first, each);
    for (int64_t j = 0; j < each; ++j) {
      if (!learnt[static_cast<size_t>(j)]) tokens[static_cast<size_t>(i * each + j)] = -1;
    }
  }
  return fmt::format("{:016x}", text_checksum({reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4}));
}

void Sampler::check_tokens() const {
  if (file_) file_->check(options_.first_token, options_.last_token);
}

void Sampler::check_labels() const {
  if (!file_ || (options_.ignored_token < 0 && !file_->has_mask())) return;
  constexpr int64_t kPiece = int64_t{1} << 20;
  const int64_t end = options_.first_token + windows_ * options_.seq + 1;
  std::vector<int32_t> piece;
  for (int64_t first = options_.first_token + 1; first < end; first += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, end - first)));
    file_->read(first, static_cast<int64_t>(piece.size()), piece.data());
    const std::vector<bool> learnt = file_->read_mask(first, static_cast<int64_t>(piece.size()));
    for (size_t i = 0; i < piece.size(); ++i) {
      if (learnt[i] && piece[i] != options_.ignored_token) return;
    }
  }
  if (options_.ignored_token < 0) bad_token_file(file_->path(), "by the file's mask no token counts as a label");
  throw Error(ErrorCode::invalid_argument, {.where = "ignored token (--ignore-token)",
                                            .what = "every label of the data is this token, so that none counts",
                                            .got = std::to_string(options_.ignored_token),
                                            .fix = "Choose the token that pads the data, or leave it out."});
}

std::string Sampler::description() const {
  if (!file_) return "random tokens";
  const auto tokens = static_cast<double>(options_.last_token - options_.first_token);
  const std::string count = tokens >= 1e9   ? fmt::format("{:.2f} G", tokens * 1e-9)
                            : tokens >= 1e6 ? fmt::format("{:.2f} M", tokens * 1e-6)
                                            : fmt::format("{:.0f}", tokens);
  return fmt::format("{}, {} tokens", file_->format().empty() ? "token file" : file_->format(), count);
}

int64_t Sampler::window_of(int64_t sample) {
  if (!options_.shuffle) return sample % windows_;
  const int64_t epoch = sample / windows_;
  if (epoch != epoch_) {
    order_.resize(static_cast<size_t>(windows_));
    std::iota(order_.begin(), order_.end(), 0u);
    const RandomStream random{.seed = options_.seed, .step = static_cast<uint32_t>(epoch), .tensor = 0xDA7Au};
    for (uint64_t i = order_.size(); i > 1; --i) {
      // Two words make the bias of the remainder vanish.
      const uint64_t word = uint64_t{random.bits(2 * i)} << 32 | random.bits(2 * i + 1);
      std::swap(order_[i - 1], order_[word % i]);
    }
    epoch_ = epoch;
  }
  return order_[static_cast<size_t>(sample % windows_)];
}

std::vector<char> Sampler::beginnings(int64_t place, const std::vector<int32_t>& window) const {
  std::vector<char> begins(window.size(), 0);
  if (options_.document_end < 0) {
    for (const int64_t start : file_->starts_among(place + 1, options_.seq))
      begins[static_cast<size_t>(start - place)] = 1;
    return begins;
  }
  for (size_t i = 1; i < window.size(); ++i) begins[i] = window[i - 1] == options_.document_end;
  return begins;
}

void Sampler::fill(int64_t first, int64_t count, TokenBatch& batch) {
  check_range("first sample", static_cast<double>(first), 0, 0x1p38);  // so that its tokens can be counted
  check_range("number of samples", static_cast<double>(count), 0, 0x1p32);
  const int64_t seq = options_.seq;
  std::vector<int32_t> window(static_cast<size_t>(seq + 1));
  std::vector<bool> learnt;
  std::vector<char> beginning;
  for (int64_t s = first; s < first + count; ++s) {
    if (file_) {
      const int64_t place = options_.first_token + window_of(s) * seq;
      file_->read(place, seq + 1, window.data());
      if (file_->has_mask()) learnt = file_->read_mask(place, seq + 1);
      if (options_.documents_apart) beginning = beginnings(place, window);
    } else {
      const RandomStream random{.seed = options_.seed, .tensor = 0x7092u};
      for (int64_t i = 0; i <= seq; ++i) {
        window[static_cast<size_t>(i)] = static_cast<int32_t>(random.bits(static_cast<uint64_t>(s * (seq + 1) + i)) %
                                                              static_cast<uint64_t>(options_.vocab));
      }
    }
    batch.ids.insert(batch.ids.end(), window.begin(), window.end() - 1);
    int32_t start = 0;
    for (int64_t i = 1; i <= seq; ++i) {
      const int32_t token = window[static_cast<size_t>(i)];
      const bool begins = !beginning.empty() && beginning[static_cast<size_t>(i)];
      const bool counts =
          !begins && token != options_.ignored_token && (learnt.empty() || learnt[static_cast<size_t>(i)]);
      const int64_t label = counts ? token : options_.ignore_index;
      if (options_.documents_apart) batch.starts.push_back(start);
      if (begins) start = static_cast<int32_t>(i);
      batch.labels.push_back(static_cast<int32_t>(label));
      batch.counted += label == options_.ignore_index ? 0 : 1;
    }
  }
}

}  // namespace tigon
