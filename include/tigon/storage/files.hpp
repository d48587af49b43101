#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

namespace tigon {

class Checksum;

// Opens a file to be read, at its beginning. Error, with the system's reason, where that cannot be done; also where it
// is no plain file (a pipe would wait for its writer), or a pointer that Git LFS left in the place of the file.
std::ifstream open_to_read(const std::filesystem::path& path);

// A whole file as text. Files larger than `limit` are refused: nothing that is read this way is large.
std::string read_text_file(const std::filesystem::path& path, int64_t limit);

// The file that a name to write to means: a link leads to another name. Error for what is no plain file.
std::filesystem::path file_to_write(std::filesystem::path path);

// A file that appears whole or not at all: written beside its name, flushed to the disk, then renamed over it. A link
// stays, and the file that it leads to is the one that is written. A name that is taken by something else than a plain
// file is refused. A writer that is destroyed before commit() leaves nothing.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path);  // its folder must exist
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }
  void commit();
  // Of everything written so far.
  uint64_t checksum() const noexcept;

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_, temporary_;
  int file_ = -1;
  std::unique_ptr<Checksum> checksum_;
};

void write_text_file(const std::filesystem::path& path, std::string_view text);

// Makes the folder, and those above it, unless it is there. Error where files cannot be made in it.
void make_folder(const std::filesystem::path& folder);

// Whether what is written there stays in memory (tmpfs): such a folder, or the next one above it that exists.
bool kept_in_memory(std::filesystem::path folder);

// Keeps a folder from other runs as long as it lives; the kernel lets go of it when the process ends, however it ends.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);  // Error where another one has it
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int handle_ = -1;
};

// Each of two files or folders gets the other's name, at once. False, and nothing changed, where that cannot be done:
// not every file system knows it.
bool exchange_names(const std::filesystem::path& a, const std::filesystem::path& b) noexcept;

// Makes what was renamed in a folder survive a power cut.
void flush_folder(const std::filesystem::path& folder);

// The checksum of a file's bytes, the same as FileWriter's. Any change within one 8-byte word changes it for sure, any
// other with probability 1 − 2^−64.
uint64_t file_checksum(const std::filesystem::path& path);
uint64_t text_checksum(std::string_view text);

}  // namespace tigon
