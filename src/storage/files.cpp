#include "tigon/storage/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

#include "storage/checksum.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

constexpr const char* kChooseFolder = "Choose a folder that exists, is writable and has room.";

[[noreturn]] void io_error(const std::filesystem::path& path, const std::string& what, std::string fix = {}) {
  throw Error(ErrorCode::io, {.where = path.string(), .what = what, .fix = std::move(fix)});
}

}  // namespace

// A link leads to its name whether or not there is a file of that name yet.
std::filesystem::path file_to_write(std::filesystem::path path) {
  // The kernel is asked first. It alone knows which links it would not follow: circles, and those of strangers in /tmp.
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::none) io_error(path, "cannot be written: " + error.message(), kChooseFolder);
  // A device or a pipe would be gone, with a file in its place.
  if (type != std::filesystem::file_type::regular && type != std::filesystem::file_type::not_found) {
    throw Error(ErrorCode::invalid_argument, {.where = path.string(),
                                              .what = "this is not a plain file",
                                              .fix = "Choose a new name, or a file to replace."});
  }
  constexpr int kMostLinks = 40;  // as many as the kernel follows
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(path, error);
    if (error) io_error(path, "the link cannot be read: " + error.message(), kChooseFolder);
    path = path.parent_path() / next;  // which is `next` where that is absolute
  }
  return path;
}

std::ifstream open_to_read(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    io_error(path, "this is not a plain file", "Write what it should hold to a file first.");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) io_error(path, std::string("the file cannot be opened: ") + std::strerror(errno));
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
  char first[kPointer.size()];
  file.read(first, kPointer.size());
  if (file.bad()) io_error(path, std::string("the file cannot be read: ") + std::strerror(errno));
  if (file && std::string_view(first, kPointer.size()) == kPointer) {
    io_error(path, "this is a pointer of Git LFS, and not the file that it stands for",
             "Run git lfs install and git lfs pull in its folder.");
  }
  file.clear();
  file.seekg(0);
  return file;
}

std::string read_text_file(const std::filesystem::path& path, int64_t limit) {
  std::ifstream file = open_to_read(path);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellg());
  if (size < 0 || size > limit) {
    throw Error(ErrorCode::invalid_argument, {.where = path.string(),
                                              .what = "the file is too large for what it should be",
                                              .expected = "at most " + std::to_string(limit) + " bytes",
                                              .got = std::to_string(size)});
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.seekg(0);
  file.read(text.data(), size);
  if (!file) io_error(path, "the file cannot be read");
  return text;
}

FileWriter::FileWriter(std::filesystem::path path)
    : path_(file_to_write(std::move(path))),
      temporary_(path_.string() + ".tmp"),
      checksum_(std::make_unique<Checksum>()) {
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) fail("cannot be written");
}

FileWriter::~FileWriter() {
  if (file_ < 0) return;
  (void)::close(file_);
  (void)::unlink(temporary_.c_str());
}

void FileWriter::fail(const char* what) const {
  io_error(temporary_, std::string(what) + ": " + std::strerror(errno), kChooseFolder);
}

void FileWriter::write(const void* data, int64_t bytes) {
  checksum_->add(data, bytes);
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(file_, p, static_cast<size_t>(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot be written");
    p += n;
    bytes -= n;
  }
}

void FileWriter::commit() {
  if (::fsync(file_) != 0) fail("cannot be flushed");
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    (void)::unlink(temporary_.c_str());
    errno = reason;
    fail("cannot be moved into place");
  }
  flush_folder(path_.parent_path());
}

uint64_t FileWriter::checksum() const noexcept { return checksum_->value(); }

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  FileWriter file(path);
  file.write(text);
  file.commit();
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error) io_error(folder, "files cannot be made in this folder: " + error.message(), kChooseFolder);
}

bool kept_in_memory(std::filesystem::path folder) {
  constexpr uint64_t kTmpfs = 0x01021994, kRamfs = 0x858458f6;  // as in linux/magic.h
  struct statfs disk = {};
  while (::statfs(folder.empty() ? "." : folder.c_str(), &disk) != 0) {
    if (errno != ENOENT || folder.empty()) return false;
    folder = folder.has_relative_path() ? folder.parent_path() : std::filesystem::path();
  }
  const auto type = static_cast<uint64_t>(disk.f_type) & 0xffffffffU;
  return type == kTmpfs || type == kRamfs;
}

FolderLock::FolderLock(const std::filesystem::path& folder)
    : handle_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  // Where there is no folder yet, or its file system has no locks, there is nothing to hold.
  if (handle_ < 0 || ::flock(handle_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  (void)::close(handle_);
  throw Error(ErrorCode::invalid_argument, {.where = folder.string(),
                                            .what = "another run is using this folder",
                                            .fix = "Wait for its end, or choose another folder."});
}

FolderLock::~FolderLock() {
  if (handle_ >= 0) (void)::close(handle_);
}

bool exchange_names(const std::filesystem::path& a, const std::filesystem::path& b) noexcept {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

void flush_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder.empty() ? "." : folder;
  const int handle = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;  // some file systems have no handle for a folder, and then nothing to flush
  (void)::fsync(handle);
  (void)::close(handle);
}

uint64_t text_checksum(std::string_view text) {
  Checksum checksum;
  checksum.add(text.data(), static_cast<int64_t>(text.size()));
  return checksum.value();
}

uint64_t file_checksum(const std::filesystem::path& path) {
  std::ifstream file = open_to_read(path);
  Checksum checksum;
  std::vector<char> buffer(size_t{1} << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0) {
    checksum.add(buffer.data(), file.gcount());
  }
  if (file.bad()) io_error(path, "the file cannot be read");
  return checksum.value();
}

}  // namespace tigon
