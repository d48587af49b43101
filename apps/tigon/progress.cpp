#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace tigon::app {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::show(int done, int total, const std::string& what) {
  if (what.empty()) return clear();
  if (terminal_) {
    fmt::print(stderr, "\r\033[K[{}/{}] {}", done, total, what);
  } else {
    fmt::print(stderr, "[{}/{}] {}\n", done, total, what);
  }
  (void)std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (terminal_ && shown_) {
    fmt::print(stderr, "\r\033[K");
    (void)std::fflush(stderr);
  }
  shown_ = false;
}

}  // namespace tigon::app
