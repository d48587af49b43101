#pragma once

#include <atomic>

namespace tigon::app {

// As long as this lives, Ctrl-C, SIGTERM, a closed terminal and a reader that is gone only ask for an end, so that
// nothing is lost; a second Ctrl-C ends the process at once. A file larger than the shell allows is an error, as a full
// disk is.
class CatchSignals {
 public:
  CatchSignals();
  ~CatchSignals();
  CatchSignals(const CatchSignals&) = delete;
  CatchSignals& operator=(const CatchSignals&) = delete;

  const std::atomic<bool>& stop() const noexcept;
  // As shells have it of a process that a signal ended: 128 and its number.
  int exit_code() const noexcept;
};

}  // namespace tigon::app
