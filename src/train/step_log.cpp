#include "train/step_log.hpp"

#include <cerrno>
#include <cstring>
#include <string>

#include "tigon/core/error.hpp"

namespace tigon {

namespace fs = std::filesystem;

namespace {

// Data, weights or anybody's JSON that stands there by mistake would be lost. A log begins with one of these; the first
// line of a full disk may be cut.
void refuse_other_file(const fs::path& path) {
  std::string first(11, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  first.resize(static_cast<size_t>(file.gcount()));
  for (const std::string beginning : {R"({"step":)", R"({"end":true)"}) {
    if (first.substr(0, beginning.size()) == beginning.substr(0, first.size())) return;
  }
  throw Error(ErrorCode::invalid_argument, {.where = path.string(),
                                            .what = "the log would overwrite a file that is not a log",
                                            .fix = "Choose another file for the log."});
}

// A full disk leaves a part of a line, which the next one must not be glued to.
void drop_cut_line(const fs::path& path) {
  std::ifstream old(path, std::ios::binary);
  int64_t whole = 0, size = 0;
  for (std::string line; std::getline(old, line); size += old.eof() ? 0 : 1) {
    size += static_cast<int64_t>(line.size());
    if (!old.eof()) whole = size + 1;
  }
  if (whole < size) fs::resize_file(path, static_cast<uintmax_t>(whole));
}

}  // namespace

StepLog::StepLog(const fs::path& path, bool append) {
  if (path.empty()) return;
  if (fs::is_regular_file(path)) {
    refuse_other_file(path);
    if (append) drop_cut_line(path);
  }
  errno = 0;
  file_.open(path, append ? std::ios::app : std::ios::trunc);
  if (!file_) {
    throw Error(ErrorCode::io, {.where = path.string(),
                                .what = std::string("the log cannot be written: ") + std::strerror(errno),
                                .fix = "Choose a file in a folder that exists and is writable."});
  }
}

bool StepLog::write(const Json& line) {
  if (!file_.is_open()) return true;
  file_ << line.dump(false) << "\n" << std::flush;
  if (file_) return true;
  file_.close();
  return false;
}

}  // namespace tigon
