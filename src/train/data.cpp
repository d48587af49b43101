#include "tigon/train/data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/storage/files.hpp"
#include "train/check_range.hpp"
#include "train/data_format.hpp"

namespace tigon {

namespace {

constexpr char kMagic[8] = {'T', 'I', 'G', 'O', 'N', 'T', 'O', 'K'};
constexpr int64_t kHeader = 32;
constexpr int64_t kLargestVocab = int64_t{1} << 31;

uint64_t little_endian(const unsigned char* p, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | p[i];
  return value;
}

[[noreturn]] void bad_file(const std::filesystem::path& path, std::string what, std::string expected = {},
                           std::string got = {}) {
  throw Error(
      ErrorCode::invalid_argument,
      {.where = path.string(), .what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) : path_(path) {
  file_ = open_to_read(path);
  file_.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file_.tellg());
  unsigned char header[kHeader] = {};
  file_.seekg(0);
  file_.read(reinterpret_cast<char*>(header), std::min<int64_t>(size, kHeader));
  if (size < 8 || std::memcmp(header, kMagic, 8) != 0) {
    tokens_ = size;
    format_ = format_of_bytes(path, {reinterpret_cast<const char*>(header), sizeof header});
    return;
  }
  if (size < kHeader) bad_file(path, "the header is cut short");
  const uint64_t version = little_endian(header + 8, 4), width = little_endian(header + 12, 4);
  const uint64_t count = little_endian(header + 16, 8), vocab = little_endian(header + 24, 8);
  if (version != 1) bad_file(path, "this version of token files is not known", "1", std::to_string(version));
  if (width != 2 && width != 4) bad_file(path, "bytes per token", "2 or 4", std::to_string(width));
  if (vocab < 1 || vocab > static_cast<uint64_t>(kLargestVocab))
    bad_file(path, "the vocabulary's size", "1 to 2^31", std::to_string(vocab));
  if (count > static_cast<uint64_t>(size - kHeader) / width || count * width != static_cast<uint64_t>(size - kHeader)) {
    bad_file(path, "the file's size does not fit its header",
             std::to_string(count) + " tokens of " + std::to_string(width) + " bytes",
             std::to_string(size - kHeader) + " bytes");
  }
  start_ = kHeader;
  width_ = static_cast<int64_t>(width);
  tokens_ = static_cast<int64_t>(count);
  vocab_ = static_cast<int64_t>(vocab);
}

void TokenFile::read(int64_t first, int64_t count, int32_t* out) const {
  if (first < 0 || count < 0 || first > tokens_ - count) {
    bad_file(path_, "a read outside the tokens", std::to_string(tokens_) + " tokens at most",
             std::to_string(count) + " from " + std::to_string(first) + " on");
  }
  std::vector<unsigned char> bytes(static_cast<size_t>(count * width_));
  file_.clear();
  file_.seekg(start_ + first * width_);
  file_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file_) throw Error(ErrorCode::io, {.where = path_.string(), .what = "the tokens cannot be read"});
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t token = little_endian(bytes.data() + i * width_, static_cast<int>(width_));
    if (token >= static_cast<uint64_t>(vocab_)) {
      bad_file(path_, "token " + std::to_string(first + i) + " is outside the vocabulary",
               "below " + std::to_string(vocab_), std::to_string(token));
    }
    out[i] = static_cast<int32_t>(token);
  }
}

void TokenFile::check(int64_t first, int64_t last) const {
  constexpr int64_t kMost = int64_t{1} << 30, kPiece = int64_t{1} << 20;
  const bool always_inside = int64_t{1} << (8 * width_) <= vocab_;
  if (always_inside || (last - first) * width_ > kMost) return;
  std::vector<int32_t> piece(static_cast<size_t>(std::min(kPiece, last - first)));
  for (; first < last; first += kPiece) read(first, std::min(kPiece, last - first), piece.data());
}

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
  if (path.empty()) return;
  file_ = std::make_unique<TokenFile>(path);
  if (!options.bytes) refuse_bytes(path, file_->format(), options.vocab);
  if (file_->vocab() > options.vocab) {
    bad_file(path, "the data's vocabulary is larger than the model's", "at most " + std::to_string(options.vocab),
             std::to_string(file_->vocab()));
  }
  if (options_.last_token < 0 || options_.last_token > file_->tokens()) options_.last_token = file_->tokens();
  windows_ = (options_.last_token - options_.first_token - 1) / options_.seq;
  if (options_.last_token - options_.first_token < 2 || windows_ < 1) {
    const bool part = options_.first_token > 0 || options_.last_token < file_->tokens();  // the rest is for evaluation
    bad_file(path,
             "there are too few tokens for one sequence" +
                 (part ? fmt::format(" from token {} to {}", options_.first_token, options_.last_token) : ""),
             "at least " + std::to_string(options_.seq + 1),
             std::to_string(std::max<int64_t>(0, options_.last_token - options_.first_token)));
  }
  if (windows_ > int64_t{1} << 31) bad_file(path, "there are too many windows for a shuffled order");
}

std::string Sampler::fingerprint() const {
  if (!file_) return "random";
  const int64_t taken = std::min<int64_t>(windows_, 64), each = std::min<int64_t>(options_.seq, 1024);
  std::vector<int32_t> tokens(static_cast<size_t>(taken * each));
  for (int64_t i = 0; i < taken; ++i) {
    file_->read(options_.first_token + windows_ * i / taken * options_.seq, each, tokens.data() + i * each);
  }
  return fmt::format("{:016x}", text_checksum({reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4}));
}

void Sampler::check_tokens() const {
  if (file_) file_->check(options_.first_token, options_.last_token);
}

void Sampler::check_labels() const {
  if (!file_ || options_.ignored_token < 0) return;
  constexpr int64_t kPiece = int64_t{1} << 20;
  const int64_t end = options_.first_token + windows_ * options_.seq + 1;
  std::vector<int32_t> piece;
  for (int64_t first = options_.first_token + 1; first < end; first += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, end - first)));
    file_->read(first, static_cast<int64_t>(piece.size()), piece.data());
    if (std::any_of(piece.begin(), piece.end(), [&](int32_t token) { return token != options_.ignored_token; })) return;
  }
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

void Sampler::fill(int64_t first, int64_t count, TokenBatch& batch) {
  check_range("first sample", static_cast<double>(first), 0, 0x1p38);  // so that its tokens can be counted
  check_range("number of samples", static_cast<double>(count), 0, 0x1p32);
  const int64_t seq = options_.seq;
  std::vector<int32_t> window(static_cast<size_t>(seq + 1));
  for (int64_t s = first; s < first + count; ++s) {
    if (file_) {
      file_->read(options_.first_token + window_of(s) * seq, seq + 1, window.data());
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
      const bool ends = options_.document_end >= 0 && window[static_cast<size_t>(i - 1)] == options_.document_end;
      const int64_t label = ends || token == options_.ignored_token ? options_.ignore_index : token;
      if (options_.document_end >= 0) batch.starts.push_back(start);
      if (ends) start = static_cast<int32_t>(i);
      batch.labels.push_back(static_cast<int32_t>(label));
      batch.counted += label == options_.ignore_index ? 0 : 1;
    }
  }
}

void write_token_file(const std::filesystem::path& path, const std::vector<int32_t>& tokens, int64_t vocab) {
  check_range("vocab", static_cast<double>(vocab), 1, static_cast<double>(kLargestVocab));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      bad_file(path, "token " + std::to_string(i) + " is outside the vocabulary", "0 to " + std::to_string(vocab - 1),
               std::to_string(tokens[i]));
    }
  }
  const int width = vocab <= 65536 ? 2 : 4;
  std::string bytes(kMagic, 8);
  const auto put = [&](uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  };
  put(1, 4);
  put(static_cast<uint64_t>(width), 4);
  put(tokens.size(), 8);
  put(static_cast<uint64_t>(vocab), 8);
  for (const int32_t token : tokens) put(static_cast<uint64_t>(token), width);
  write_text_file(path, bytes);
}

}  // namespace tigon
