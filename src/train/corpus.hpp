// The files of a corpus, in pieces that fit into memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tigon {

struct CorpusPiece {
  bool lines = false;               // of JSON; else text
  std::string text;                 // whole lines
  std::string file;                 // its name
  int64_t first_line = 1;           // of the piece in its file
  bool begins = true, ends = true;  // whether a text begins and ends with the piece
};

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
