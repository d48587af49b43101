#include <algorithm>

#include "tigon/storage/files.hpp"
#include "tigon/train/data.hpp"
#include "train/data_format.hpp"
#include "train/token_format.hpp"

namespace tigon {

TokenFile::TokenFile(const std::filesystem::path& path) : path_(path) {
  file_ = open_to_read(path);
  file_.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file_.tellg());
  const std::vector<unsigned char> header = read_bytes(0, std::min(size, kTokenHeader));
  const std::string_view first(reinterpret_cast<const char*>(header.data()), header.size());
  if (!first.starts_with(kTokenMagic)) {
    tokens_ = size;
    format_ = format_of_bytes(path, first);
    return;
  }
  if (size < kTokenHeader) bad_token_file(path, "the header is cut short");
  const uint64_t version = little_endian(header.data() + 8, 4), width = little_endian(header.data() + 12, 4);
  const uint64_t count = little_endian(header.data() + 16, 8), vocab = little_endian(header.data() + 24, 8);
  if (version != 1 && version != 2)
    bad_token_file(path, "this version of token files is not known", "1 or 2", std::to_string(version));
  if (width != 2 && width != 4) bad_token_file(path, "bytes per token", "2 or 4", std::to_string(width));
  if (vocab < 1 || vocab > static_cast<uint64_t>(kLargestVocab))
    bad_token_file(path, "the vocabulary's size", "1 to 2^31", std::to_string(vocab));
  start_ = kTokenHeader;
  width_ = static_cast<int64_t>(width);
  vocab_ = static_cast<int64_t>(vocab);
  if (version == 2) {
    read_end(size);
    return;
  }
  const auto bytes = static_cast<uint64_t>(size - kTokenHeader);
  if (count > bytes / width || count * width != bytes) {
    bad_token_file(path, "the file's size does not fit its header",
                   std::to_string(count) + " tokens of " + std::to_string(width) + " bytes",
                   std::to_string(bytes) + " bytes");
  }
  tokens_ = static_cast<int64_t>(count);
}

bool TokenFile::is_text() const noexcept { return tigon::is_text(format_); }

void TokenFile::read_end(int64_t size) {
  const int64_t inside = size - kTokenHeader - kTokenTail;
  if (inside < 0) bad_token_file(path_, "the file is cut short");
  const std::vector<unsigned char> tail = read_bytes(size - kTokenTail, kTokenTail);
  if (std::string_view(reinterpret_cast<const char*>(tail.data()) + 24, 8) != kTokenEnd)
    bad_token_file(path_, "the file is cut short, or was not written to its end");
  const uint64_t tokens = little_endian(tail.data(), 8), documents = little_endian(tail.data() + 8, 8);
  const uint64_t masked = little_endian(tail.data() + 16, 8);
  const auto most = static_cast<uint64_t>(inside);
  const bool fits =
      tokens <= most / static_cast<uint64_t>(width_) && documents <= most / 8 && masked <= 1 &&
      tokens * static_cast<uint64_t>(width_) + (masked != 0 ? (tokens + 7) / 8 : 0) + documents * 8 == most;
  if (!fits) {
    bad_token_file(path_, "the file's size does not fit its end",
                   std::to_string(tokens) + " tokens and " + std::to_string(documents) + " documents",
                   std::to_string(size) + " bytes");
  }
  tokens_ = static_cast<int64_t>(tokens);
  documents_ = static_cast<int64_t>(documents);
  if (masked != 0) mask_ = start_ + tokens_ * width_;
  document_list_ = size - kTokenTail - documents_ * 8;
}

std::vector<unsigned char> TokenFile::read_bytes(int64_t at, int64_t bytes) const {
  std::vector<unsigned char> result(static_cast<size_t>(bytes));
  file_.clear();
  file_.seekg(at);
  file_.read(reinterpret_cast<char*>(result.data()), bytes);
  if (!file_) throw Error(ErrorCode::io, {.where = path_.string(), .what = "the tokens cannot be read"});
  return result;
}

void TokenFile::check_range_of_tokens(int64_t first, int64_t count) const {
  if (first >= 0 && count >= 0 && first <= tokens_ - count) return;
  bad_token_file(path_, "a read outside the tokens", std::to_string(tokens_) + " tokens at most",
                 std::to_string(count) + " from " + std::to_string(first) + " on");
}

void TokenFile::read(int64_t first, int64_t count, int32_t* out) const {
  check_range_of_tokens(first, count);
  const std::vector<unsigned char> bytes = read_bytes(start_ + first * width_, count * width_);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t token = little_endian(bytes.data() + i * width_, static_cast<int>(width_));
    if (token >= static_cast<uint64_t>(vocab_)) {
      bad_token_file(path_, "token " + std::to_string(first + i) + " is outside the vocabulary",
                     "below " + std::to_string(vocab_), std::to_string(token));
    }
    out[i] = static_cast<int32_t>(token);
  }
}

std::vector<bool> TokenFile::read_mask(int64_t first, int64_t count) const {
  check_range_of_tokens(first, count);
  std::vector<bool> learnt(static_cast<size_t>(count), true);
  if (!has_mask() || count == 0) return learnt;
  const int64_t begin = first / 8, end = (first + count - 1) / 8 + 1;
  const std::vector<unsigned char> bytes = read_bytes(mask_ + begin, end - begin);
  for (int64_t i = first; i < first + count; ++i)
    learnt[static_cast<size_t>(i - first)] = (bytes[static_cast<size_t>(i / 8 - begin)] >> (i % 8) & 1) != 0;
  return learnt;
}

std::vector<int64_t> TokenFile::document_starts(int64_t first, int64_t count) const {
  if (first < 0 || count < 0 || first > documents_ - count) {
    bad_token_file(path_, "a read outside the documents", std::to_string(documents_) + " documents at most",
                   std::to_string(count) + " from " + std::to_string(first) + " on");
  }
  const std::vector<unsigned char> bytes = read_bytes(document_list_ + first * 8, count * 8);
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t start = little_endian(bytes.data() + i * 8, 8);
    const bool ordered = i == 0 ? (first > 0 || start == 0) : start > static_cast<uint64_t>(starts.back());
    if (!ordered || start >= static_cast<uint64_t>(tokens_))
      bad_token_file(path_, "document " + std::to_string(first + i) + " begins at no place of its own", {},
                     std::to_string(start));
    starts.push_back(static_cast<int64_t>(start));
  }
  return starts;
}

std::vector<int64_t> TokenFile::starts_among(int64_t first, int64_t count) const {
  // The list may be longer than memory: it stays in the file.
  int64_t begin = 0;
  for (int64_t end = documents_; begin < end;) {
    const int64_t middle = begin + (end - begin) / 2;
    document_starts(middle, 1)[0] < first ? begin = middle + 1 : end = middle;
  }
  std::vector<int64_t> among;
  constexpr int64_t kPiece = 256;
  for (; begin < documents_; begin += kPiece) {
    for (const int64_t start : document_starts(begin, std::min(kPiece, documents_ - begin))) {
      if (start >= first + count) return among;
      // A list that is out of order leads the search astray.
      if (start < first || (!among.empty() && start <= among.back()))
        bad_token_file(path_, "the documents are not in order", "ascending", std::to_string(start));
      among.push_back(start);
    }
  }
  return among;
}

void TokenFile::check(int64_t first, int64_t last) const {
  constexpr int64_t kMost = int64_t{1} << 30, kPiece = int64_t{1} << 20;
  const bool always_inside = int64_t{1} << (8 * width_) <= vocab_;
  if (always_inside || (last - first) * width_ > kMost) return;
  std::vector<int32_t> piece(static_cast<size_t>(std::min(kPiece, last - first)));
  for (; first < last; first += kPiece) read(first, std::min(kPiece, last - first), piece.data());
}

}  // namespace tigon
