// A file without a name: its room goes back when the last handle is closed, however the process ends.
#pragma once

#include <cstdint>
#include <filesystem>

namespace tigon {

class UnnamedFile {
 public:
  // In a folder, which is made where it is not there. All `bytes` are reserved, or the Error says how many are free.
  UnnamedFile(const std::filesystem::path& folder, const std::string& where, int64_t bytes);
  ~UnnamedFile();
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  int handle() const noexcept { return handle_; }
  // Whether transfers pass the page cache by. False where the file system cannot do as asked.
  bool set_direct(bool direct) noexcept;

 private:
  void reserve(const std::string& where, int64_t bytes) const;

  int handle_ = -1;
};

}  // namespace tigon
