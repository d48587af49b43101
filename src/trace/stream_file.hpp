#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tigon/storage/files.hpp"

namespace tigon {

// A file that appears whole or not at all, written in pieces of any size with little memory; compressed where its name
// ends in .gz.
class StreamFile {
 public:
  explicit StreamFile(const std::filesystem::path& path);
  ~StreamFile();
  StreamFile(const StreamFile&) = delete;
  StreamFile& operator=(const StreamFile&) = delete;

  void write(std::string_view bytes) {
    buffer_.append(bytes);
    if (buffer_.size() >= kBuffer) flush(false);
  }
  void commit();

 private:
  static constexpr size_t kBuffer = size_t{1} << 16;
  struct Deflate;

  void flush(bool last);

  FileWriter file_;
  std::unique_ptr<Deflate> deflate_;  // absent where nothing is compressed
  std::string buffer_;
};

// Error where such a file could not be made, or where it would take the place of one that does not begin, uncompressed,
// with `beginning`: data or somebody's work, by mistake.
void check_stream_file(const std::filesystem::path& path, std::string_view beginning, const char* what);

}  // namespace tigon
