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

// Of JSON. A longer one is left out, so that memory has a bound.
inline constexpr size_t kLongestLine = size_t{64} << 20;

struct CorpusPiece {
  bool lines = false;               // of JSON; else text
  bool too_long = false;            // a line of JSON that is left out: there is no text of it
  std::string text;                 // whole lines of JSON; of a text most often, too
  std::string file;                 // its name
  int64_t first_line = 1;           // of the piece in its file
  bool begins = true, ends = true;  // whether a text begins and ends with the piece
  int64_t bytes = 0;                // of the file
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
  // Where the next piece begins.
  struct Place {
    size_t file = 0;
    int64_t byte = 0, line = 1;
    bool begins = true;  // with a text of its own
    int64_t done = 0;    // bytes of the corpus before it
  };
  const Place& place() const noexcept { return place_; }
  // Goes on from where another one was in the same files.
  void seek(const Place& place);
  // The next piece; false after the last one. A text is cut behind a line end, or before a space, or anywhere in one
  // that has neither for 4 MiB.
  bool next(CorpusPiece& piece);

 private:
  void open();
  size_t fill(std::string& text);
  CorpusPiece skip_line(const std::string& text);
  void go_on(const CorpusPiece& piece);

  std::vector<std::filesystem::path> files_;
  Place place_;
  std::ifstream file_;
  std::string rest_;  // what was read behind the last piece
  int64_t bytes_ = 0;
  bool lines_ = false, open_ = false;
};

}  // namespace tigon
