// The files of a corpus, in pieces that fit into memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace tigon {

struct CorpusPiece {
  bool lines = false;               // of JSON; else text
  std::string text;                 // whole lines
  std::string file;                 // its name
  int64_t first_line = 1;           // of the piece in its file
  bool begins = true, ends = true;  // whether a text begins and ends with the piece
};

// Calls use(line, its number) for each line that is not blank.
template <class Use>
void for_each_line(const CorpusPiece& piece, const Use& use) {
  int64_t number = piece.first_line;
  for (size_t at = 0; at < piece.text.size(); ++number) {
    const size_t end = std::min(piece.text.find('\n', at), piece.text.size());
    const std::string_view line = std::string_view(piece.text).substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) use(line, number);
  }
}

class Corpus {
 public:
  // Looks at all files at once: Error for what is neither text nor JSON lines.
  explicit Corpus(std::vector<std::filesystem::path> files);

  int64_t bytes() const noexcept { return bytes_; }
  // The next piece; false after the last one. A line of JSON of more than 256 MiB is an Error.
  bool next(CorpusPiece& piece);

 private:
  bool open_next();

  std::vector<std::filesystem::path> files_;
  size_t opened_ = 0;
  std::ifstream file_;
  std::string rest_;  // what was read behind the last piece
  int64_t bytes_ = 0, line_ = 1;
  bool lines_ = false, begins_ = true, open_ = false;
};

}  // namespace tigon
