#include "train/corpus.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "text/utf8.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "train/data_format.hpp"

namespace tigon {

namespace {

constexpr size_t kLines = size_t{1} << 20, kText = size_t{4} << 20;
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

// Where a text without line ends is cut: before its last space, else behind its last character that is whole.
size_t end_of_words(std::string_view text) {
  const size_t space = text.rfind(' ');
  if (space != std::string_view::npos && space > 0) return space;
  for (size_t back = 1; back <= std::min<size_t>(3, text.size() - 1); ++back) {
    if (utf8_step(text, text.size() - back).kind == Utf8Step::Kind::cut) return text.size() - back;
  }
  return text.size();
}

}  // namespace

Corpus::Corpus(std::vector<std::filesystem::path> files) : files_(std::move(files)) {
  for (const auto& path : files_) {
    check_format(path);
    bytes_ += static_cast<int64_t>(std::filesystem::file_size(path));
  }
}

void Corpus::seek(const Place& place) {
  place_ = place;
  rest_.clear();
  open_ = false;
}

void Corpus::open() {
  const std::filesystem::path& path = files_[place_.file];
  lines_ = format_of(path) == kJsonLines;
  file_ = open_to_read(path);
  file_.seekg(place_.byte);
  open_ = true;
}

// To behind a piece, or to the next file.
void Corpus::go_on(const CorpusPiece& piece) {
  const int64_t lines = piece.too_long ? 1 : std::count(piece.text.begin(), piece.text.end(), '\n');
  place_.done += piece.bytes;
  if (open_) {
    place_ = {place_.file, place_.byte + piece.bytes, place_.line + lines, false, place_.done};
  } else {
    place_ = {.file = place_.file + 1, .done = place_.done};
  }
}

// Reads on behind what is there, up to where it can be cut, and says where that is; for a line of JSON that is too
// long, nowhere. How much is read depends on the file alone, so that pieces are the same for everyone.
size_t Corpus::fill(std::string& text) {
  size_t newline = std::string::npos;
  for (size_t size = lines_ ? kLines : kText; file_ && newline == std::string::npos; size += kLines) {
    const size_t had = text.size();
    if (had > kLongestLine) return newline;
    text.resize(size);
    file_.read(text.data() + had, static_cast<std::streamsize>(size - had));
    text.resize(had + static_cast<size_t>(file_.gcount()));
    if (file_.bad()) throw Error(ErrorCode::io, {.where = files_[place_.file].string(), .what = "it cannot be read"});
    // There was none before, or it would have been cut there.
    if (const size_t found = std::string_view(text).substr(had).rfind('\n'); found != std::string::npos)
      newline = had + found;
    if (!lines_) break;
  }
  if (!file_) return text.size();
  return newline != std::string::npos ? newline + 1 : end_of_words(text);
}

// `text`: the beginning of a line that is too long, whose rest is not kept.
CorpusPiece Corpus::skip_line(const std::string& text) {
  file_.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  return {.lines = true,
          .too_long = true,
          .text = {},
          .file = files_[place_.file].string(),
          .first_line = place_.line,
          .bytes = static_cast<int64_t>(text.size()) + file_.gcount()};
}

bool Corpus::next(CorpusPiece& piece) {
  while (place_.file < files_.size()) {
    if (!open_) open();
    std::string text = std::exchange(rest_, {});
    const size_t end = fill(text);
    if (end == std::string::npos) {
      piece = skip_line(text);
      go_on(piece);
      return true;
    }
    open_ = static_cast<bool>(file_);
    rest_ = text.substr(end);
    text.resize(end);
    piece = {.lines = lines_,
             .text = std::move(text),
             .file = files_[place_.file].string(),
             .first_line = place_.line,
             .begins = place_.begins,
             .ends = !open_,
             .bytes = static_cast<int64_t>(end)};
    go_on(piece);
    if (!piece.text.empty() || (!lines_ && !piece.begins)) return true;
  }
  return false;
}

}  // namespace tigon
