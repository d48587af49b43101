#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace tigon {

// A file that is written at its end and stays as far as it was written, so that another process may go on with it. As
// long as this lives, no other one can.
class GrowingFile {
 public:
  // Keeps the first `kept` bytes of what is there, and nothing behind them. Error where fewer are there, or where
  // another process has it.
  GrowingFile(std::filesystem::path path, int64_t kept);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  int64_t bytes() const noexcept { return bytes_; }
  void write(std::string_view bytes);
  void hand_over();                                 // to the system, so that other readers see it
  void flush();                                     // to the disk
  void move_to(const std::filesystem::path& path);  // flushed, over what is there
  void remove() noexcept;

 private:
  explicit GrowingFile(std::filesystem::path path) : path_(std::move(path)) {}
  [[noreturn]] void fail(const char* what) const;
  void open();

  std::filesystem::path path_;
  int file_ = -1;
  int64_t bytes_ = 0;
  std::string held_;
};

}  // namespace tigon
