#include <algorithm>

#include "tigon/storage/files.hpp"
#include "tigon/train/data.hpp"
#include "train/check_range.hpp"
#include "train/token_format.hpp"

namespace tigon {

namespace {

std::string header_of(uint64_t version, uint64_t tokens, int64_t vocab) {
  std::string bytes(kTokenMagic);
  put_little_endian(bytes, version, 4);
  put_little_endian(bytes, static_cast<uint64_t>(token_width(vocab)), 4);
  put_little_endian(bytes, tokens, 8);
  put_little_endian(bytes, static_cast<uint64_t>(vocab), 8);
  return bytes;
}

void put_tokens(std::string& bytes, std::span<const int32_t> tokens, int64_t vocab, const std::filesystem::path& path) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      bad_token_file(path, "token " + std::to_string(i) + " is outside the vocabulary",
                     "0 to " + std::to_string(vocab - 1), std::to_string(tokens[i]));
    }
    put_little_endian(bytes, static_cast<uint64_t>(tokens[i]), token_width(vocab));
  }
}

}  // namespace

struct TokenFileWriter::State {
  State(const std::filesystem::path& name, int64_t size) : path(name), vocab(size), file(name) {}

  std::filesystem::path path;
  int64_t vocab;
  FileWriter file;
  int64_t tokens = 0, learnt = 0;
  std::vector<int64_t> starts;  // of the documents
  std::vector<bool> mask;       // of the tokens up to the last one that is left out
};

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, int64_t vocab) {
  check_range("vocab", static_cast<double>(vocab), 1, static_cast<double>(kLargestVocab));
  state_ = std::make_unique<State>(path, vocab);
  state_->file.write(header_of(2, 0, vocab));
}

TokenFileWriter::~TokenFileWriter() = default;

void TokenFileWriter::add(std::span<const int32_t> tokens, const std::vector<bool>& learnt, bool begins) {
  State& s = *state_;
  if (tokens.empty() || tokens.size() != learnt.size())
    throw Error(ErrorCode::internal, {.where = "token file", .what = "a document without tokens or mask"});
  if (begins || s.starts.empty()) s.starts.push_back(s.tokens);
  std::string bytes;
  put_tokens(bytes, tokens, s.vocab, s.path);
  s.file.write(bytes);
  if (std::find(learnt.begin(), learnt.end(), false) != learnt.end()) {
    s.mask.resize(static_cast<size_t>(s.tokens), true);
    s.mask.insert(s.mask.end(), learnt.begin(), learnt.end());
  }
  s.learnt += std::count(learnt.begin(), learnt.end(), true);
  s.tokens += static_cast<int64_t>(tokens.size());
}

void TokenFileWriter::finish() {
  State& s = *state_;
  constexpr size_t kPiece = size_t{1} << 20;
  std::string bytes;
  const auto flush = [&](size_t limit) {
    if (bytes.size() < limit) return;
    s.file.write(bytes);
    bytes.clear();
  };
  const bool masked = !s.mask.empty();
  if (masked) s.mask.resize(static_cast<size_t>(s.tokens), true);
  for (size_t i = 0; i < s.mask.size(); i += 8) {
    unsigned int byte = 0;
    for (size_t bit = 0; bit < 8 && i + bit < s.mask.size(); ++bit)
      byte |= static_cast<unsigned int>(s.mask[i + bit]) << bit;
    bytes.push_back(static_cast<char>(byte));
    flush(kPiece);
  }
  for (const int64_t start : s.starts) {
    put_little_endian(bytes, static_cast<uint64_t>(start), 8);
    flush(kPiece);
  }
  put_little_endian(bytes, static_cast<uint64_t>(s.tokens), 8);
  put_little_endian(bytes, s.starts.size(), 8);
  put_little_endian(bytes, masked ? 1 : 0, 8);
  bytes += kTokenEnd;
  flush(0);
  s.file.commit();
}

int64_t TokenFileWriter::tokens() const noexcept { return state_->tokens; }
int64_t TokenFileWriter::learnt() const noexcept { return state_->learnt; }

void write_token_file(const std::filesystem::path& path, const std::vector<int32_t>& tokens, int64_t vocab) {
  check_range("vocab", static_cast<double>(vocab), 1, static_cast<double>(kLargestVocab));
  std::string bytes = header_of(1, tokens.size(), vocab);
  put_tokens(bytes, tokens, vocab, path);
  write_text_file(path, bytes);
}

}  // namespace tigon
