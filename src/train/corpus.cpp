#include "train/corpus.hpp"

#include <algorithm>
#include <utility>

#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "train/data_format.hpp"

namespace tigon {

namespace {

constexpr size_t kLines = size_t{1} << 20, kText = size_t{4} << 20, kLongestLine = size_t{256} << 20;
constexpr const char* kJsonLines = "JSON lines";

std::string format_of(const std::filesystem::path& path) {
  std::ifstream file = open_to_read(path);
  char first[32] = {};
  file.read(first, sizeof first);
  return format_of_bytes(path, {first, static_cast<size_t>(file.gcount())});
}

void check_format(const std::filesystem::path& path) {
  const std::string format = format_of(path);
  if (format == kJsonLines || format == "plain text") return;
  throw Error(ErrorCode::invalid_argument, {.where = path.string(),
                                            .what = "this file cannot be tokenized as it is",
                                            .expected = "text, or JSON lines (.jsonl)",
                                            .got = format,
                                            .fix = format == "JSON" ? "Make lines of it: jq -c '.[]' FILE > FILE.jsonl"
                                                                    : "Unpack or convert it first."});
}

}  // namespace

Corpus::Corpus(std::vector<std::filesystem::path> files) : files_(std::move(files)) {
  for (const auto& path : files_) {
    check_format(path);
    bytes_ += static_cast<int64_t>(std::filesystem::file_size(path));
  }
}

bool Corpus::open_next() {
  if (opened_ == files_.size()) return false;
  lines_ = format_of(files_[opened_]) == kJsonLines;
  file_ = open_to_read(files_[opened_++]);
  rest_.clear();
  line_ = 1;
  begins_ = open_ = true;
  return true;
}

bool Corpus::next(CorpusPiece& piece) {
  while (true) {
    if (!open_ && !open_next()) return false;
    const std::string name = files_[opened_ - 1].string();
    std::string text = std::move(rest_);
    rest_.clear();
    size_t end = std::string::npos;  // behind the last line end
    while (file_ && (text.size() < (lines_ ? kLines : kText) || end == std::string::npos)) {
      const size_t had = text.size(), more = std::max<size_t>(kLines, lines_ ? 0 : kText - std::min(kText, had));
      text.resize(had + more);
      file_.read(text.data() + had, static_cast<std::streamsize>(more));
      text.resize(had + static_cast<size_t>(file_.gcount()));
      if (file_.bad()) throw Error(ErrorCode::io, {.where = name, .what = "the file cannot be read"});
      const size_t newline = text.rfind('\n');
      end = newline == std::string::npos ? newline : newline + 1;
      if (end == std::string::npos && text.size() > kLongestLine) {
        throw Error(
            ErrorCode::unsupported,
            {.where = name + ":" + std::to_string(line_), .what = "a line is too long", .expected = "at most 256 MiB"});
      }
    }
    const bool last = !file_;
    if (!last) {
      rest_ = text.substr(end);
      text.resize(end);
    }
    open_ = !last;
    if (text.empty() && (lines_ || begins_)) continue;
    piece = {
        .lines = lines_, .text = std::move(text), .file = name, .first_line = line_, .begins = begins_, .ends = last};
    line_ += std::count(piece.text.begin(), piece.text.end(), '\n');
    begins_ = false;
    return true;
  }
}

}  // namespace tigon
