#include "storage/unnamed_file.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace {

int open_in(const std::filesystem::path& folder) {
  const int handle = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (handle >= 0) return handle;
  // Not every file system makes files without a name. A process that is killed between these two leaves an empty file.
  std::string name = (folder / ".tigon-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) (void)::unlink(name.c_str());
  return named;
}

}  // namespace

UnnamedFile::UnnamedFile(const std::filesystem::path& folder, const std::string& where, int64_t bytes) {
  make_folder(folder);
  handle_ = open_in(folder);
  if (handle_ < 0) {
    throw Error(ErrorCode::io, {.where = where,
                                .what = std::string("the file cannot be made: ") + std::strerror(errno),
                                .fix = "Choose a folder that is writable."});
  }
  try {
    reserve(where, bytes);
  } catch (...) {
    (void)::close(handle_);
    throw;
  }
}

UnnamedFile::~UnnamedFile() { (void)::close(handle_); }

void UnnamedFile::reserve(const std::string& where, int64_t bytes) const {
  struct statvfs disk = {};
  const bool known = ::fstatvfs(handle_, &disk) == 0;
  const uint64_t free = known ? uint64_t{disk.f_bavail} * disk.f_frsize : 0;
  const auto full = [&](const char* reason) {
    throw Error(ErrorCode::io, {.where = where,
                                .what = std::string("there is no room for the file: ") + reason,
                                .expected = std::to_string(bytes) + " bytes free",
                                .got = known ? std::to_string(free) : "unknown",
                                .fix = "Free space there, choose a folder on a larger disk, or put less on the disk."});
  };
  // Asked first: a disk would be filled to its end before the kernel finds that there is not enough.
  if (known && static_cast<uint64_t>(bytes) > free) full(std::strerror(ENOSPC));
  int failed = 0;
  do failed = ::fallocate(handle_, 0, 0, bytes) == 0 ? 0 : errno;
  while (failed == EINTR);
  // Some file systems cannot reserve; a disk that fills up later is the error of a request then.
  if (failed == EOPNOTSUPP || failed == ENOSYS) failed = ::ftruncate(handle_, bytes) == 0 ? 0 : errno;
  if (failed != 0) full(std::strerror(failed));
}

bool UnnamedFile::set_direct(bool direct) noexcept {
  const int flags = ::fcntl(handle_, F_GETFL);
  return flags >= 0 && ::fcntl(handle_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace tigon
