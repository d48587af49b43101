#include "tigon/storage/growing_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace {

constexpr size_t kHeld = size_t{1} << 20;

}  // namespace

// Of two constructors, so that the destructor closes what is open where this one throws.
GrowingFile::GrowingFile(std::filesystem::path path, int64_t kept) : GrowingFile(std::move(path)) {
  open();
  bytes_ = kept;
  const int64_t there = ::lseek(file_, 0, SEEK_END);
  if (there < kept) {
    throw Error(ErrorCode::io, {.where = path_.string(),
                                .what = "it is shorter than when it was left",
                                .expected = std::to_string(kept) + " bytes at least",
                                .got = std::to_string(there),
                                .fix = "Remove it and the .resume beside it, to begin anew."});
  }
  if (::ftruncate(file_, kept) != 0 || ::lseek(file_, kept, SEEK_SET) != kept) fail("cannot be gone on with");
}

GrowingFile::~GrowingFile() {
  if (file_ >= 0) (void)::close(file_);
}

void GrowingFile::open() {
  while (true) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file_ < 0) fail("cannot be written");
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      throw Error(ErrorCode::invalid_argument, {.where = path_.string(),
                                                .what = "another run is writing this file",
                                                .fix = "Wait for its end, or choose another name."});
    }
    // Whoever had it may have moved it away in between: then it is theirs.
    struct stat ours = {}, there = {};
    const bool same = ::fstat(file_, &ours) == 0 && ::stat(path_.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
                      ours.st_dev == there.st_dev;
    if (same) return;
    (void)::close(std::exchange(file_, -1));
  }
}

void GrowingFile::fail(const char* what) const {
  throw Error(ErrorCode::io, {.where = path_.string(),
                              .what = std::string(what) + ": " + std::strerror(errno),
                              .fix = "Choose a folder that exists, is writable and has room."});
}

void GrowingFile::write(std::string_view bytes) {
  bytes_ += static_cast<int64_t>(bytes.size());
  held_.append(bytes);
  if (held_.size() >= kHeld) hand_over();
}

void GrowingFile::hand_over() {
  for (size_t done = 0; done < held_.size();) {
    const ssize_t n = ::write(file_, held_.data() + done, held_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot be written");
    done += static_cast<size_t>(n);
  }
  held_.clear();
}

void GrowingFile::flush() {
  hand_over();
  if (::fsync(file_) != 0) fail("cannot be flushed");
}

void GrowingFile::move_to(const std::filesystem::path& path) {
  flush();
  if (std::rename(path_.c_str(), path.c_str()) != 0) fail("cannot be moved into place");
  flush_folder(path.parent_path());
}

void GrowingFile::remove() noexcept { (void)::unlink(path_.c_str()); }

}  // namespace tigon
