#include <algorithm>
#include <fstream>

#include "tigon/storage/files.hpp"
#include "tigon/storage/growing_file.hpp"
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

// The list of documents, while it grows: for each document, or part of one, its tokens times 4, plus 2 where it begins
// with them, plus 1 where some are left out; then a bit for each token says which.
struct TokenFileWriter::State {
  State(const std::filesystem::path& name, int64_t size, const Mark& from)
      : path(file_to_write(name)),
        vocab(size),
        file(path.string() + ".part", from.tokens == 0 ? 0 : kTokenHeader + from.tokens * token_width(vocab)),
        list(path.string() + ".documents", from.list_bytes),
        tokens(from.tokens),
        learnt(from.learnt),
        keeps(from.tokens > 0) {
    if (file.bytes() == 0) file.write(header_of(2, 0, vocab));
  }
  ~State() {
    if (!keeps) remove();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void remove() noexcept {
    file.remove();
    list.remove();
  }
  void write_mask();
  int64_t write_starts();

  std::filesystem::path path;
  int64_t vocab;
  GrowingFile file, list;
  int64_t tokens, learnt;
  bool keeps;  // what there is, when this is gone
};

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, int64_t vocab)
    : TokenFileWriter(path, vocab, Mark{}) {}

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, int64_t vocab, const Mark& from) {
  check_range("vocab", static_cast<double>(vocab), 1, static_cast<double>(kLargestVocab));
  state_ = std::make_unique<State>(path, vocab, from);
}

TokenFileWriter::~TokenFileWriter() = default;

void TokenFileWriter::add(std::span<const int32_t> tokens, const std::vector<bool>& learnt, bool begins) {
  State& s = *state_;
  if (tokens.empty() || tokens.size() != learnt.size())
    throw Error(ErrorCode::internal, {.where = "token file", .what = "a document without tokens or mask"});
  const auto counted = std::count(learnt.begin(), learnt.end(), true);
  const bool partly = counted < std::ssize(learnt);
  std::string bytes, record;
  put_tokens(bytes, tokens, s.vocab, s.path);
  put_little_endian(record, tokens.size() << 2 | (begins || s.tokens == 0 ? 2 : 0) | (partly ? 1 : 0), 8);
  for (size_t i = 0; partly && i < learnt.size(); i += 8) {
    unsigned int byte = 0;
    for (size_t bit = 0; bit < 8 && i + bit < learnt.size(); ++bit)
      byte |= static_cast<unsigned int>(learnt[i + bit]) << bit;
    record.push_back(static_cast<char>(byte));
  }
  s.file.write(bytes);
  s.list.write(record);
  s.learnt += counted;
  s.tokens += std::ssize(tokens);
}

TokenFileWriter::Mark TokenFileWriter::mark() {
  State& s = *state_;
  s.file.flush();
  s.list.flush();
  s.keeps = true;
  return {.tokens = s.tokens, .learnt = s.learnt, .list_bytes = s.list.bytes()};
}

namespace {

// Calls use(tokens, begins, bits) for each record of a list of so many tokens; no bits: all are learnt.
template <class Use>
void for_each_record(const std::filesystem::path& list, int64_t tokens, const Use& use) {
  std::ifstream file = open_to_read(list);
  unsigned char head[8];
  std::vector<unsigned char> bits;
  auto left = static_cast<uint64_t>(tokens);
  while (left > 0 && file.read(reinterpret_cast<char*>(head), sizeof head)) {
    const uint64_t value = little_endian(head, 8), count = value >> 2;
    if (count > left) break;
    bits.resize((value & 1) != 0 ? (count + 7) / 8 : 0);
    if (!file.read(reinterpret_cast<char*>(bits.data()), std::ssize(bits))) break;
    use(count, (value & 2) != 0, bits);
    left -= count;
  }
  if (left > 0) bad_token_file(list, "the list of documents is broken: remove it and begin anew");
}

}  // namespace

void TokenFileWriter::State::write_mask() {
  std::string bytes;
  unsigned int byte = 0, filled = 0;
  const auto put = [&](unsigned int bit) {
    byte |= bit << filled;
    if (++filled < 8) return;
    bytes.push_back(static_cast<char>(byte));
    byte = filled = 0;
  };
  for_each_record(list.path(), tokens, [&](uint64_t count, bool, const std::vector<unsigned char>& bits) {
    for (uint64_t i = 0; i < count; ++i) put(bits.empty() ? 1U : bits[i / 8] >> (i % 8) & 1U);
    file.write(bytes);
    bytes.clear();
  });
  while (filled != 0) put(0);
  file.write(bytes);
}

int64_t TokenFileWriter::State::write_starts() {
  int64_t documents = 0;
  uint64_t at = 0;
  for_each_record(list.path(), tokens, [&](uint64_t count, bool begins, const std::vector<unsigned char>&) {
    std::string bytes;
    if (begins) put_little_endian(bytes, at, 8);
    file.write(bytes);
    documents += begins ? 1 : 0;
    at += count;
  });
  return documents;
}

void TokenFileWriter::finish() {
  State& s = *state_;
  s.list.hand_over();
  const bool masked = s.learnt < s.tokens;
  if (masked) s.write_mask();
  const int64_t documents = s.write_starts();
  std::string bytes;
  put_little_endian(bytes, static_cast<uint64_t>(s.tokens), 8);
  put_little_endian(bytes, static_cast<uint64_t>(documents), 8);
  put_little_endian(bytes, masked ? 1 : 0, 8);
  s.file.write(bytes + std::string(kTokenEnd));
  s.file.move_to(s.path);
  s.keeps = true;
  s.list.remove();
}

void TokenFileWriter::discard() noexcept {
  state_->remove();
  state_->keeps = true;
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
