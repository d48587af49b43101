#include "signals.hpp"

#include <csignal>

namespace tigon::app {

namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> first_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler sets them");

void request_stop(int signal) {
  int none = 0;
  (void)first_signal.compare_exchange_strong(none, signal);
  stop_requested = true;
}

void on_signal(int caught) {
  request_stop(caught);
  for (const int signal : {SIGINT, SIGTERM}) (void)std::signal(signal, SIG_DFL);  // a second Ctrl-C ends it at once
  (void)std::signal(SIGHUP, SIG_IGN);  // of a terminal that is closed, which comes from the shell too
}

// Whoever read the output is gone: head, or a tee that Ctrl-C ended before the step was finished.
void on_broken_pipe(int signal) { request_stop(signal); }

}  // namespace

CatchSignals::CatchSignals() {
  for (const int signal : {SIGINT, SIGTERM}) (void)std::signal(signal, on_signal);
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) (void)std::signal(SIGHUP, SIG_IGN);  // nohup
  if (std::signal(SIGPIPE, on_broken_pipe) == SIG_IGN) (void)std::signal(SIGPIPE, SIG_IGN);
}

CatchSignals::~CatchSignals() {
  for (const int signal : {SIGINT, SIGTERM}) (void)std::signal(signal, SIG_DFL);
}

const std::atomic<bool>& CatchSignals::stop() const noexcept { return stop_requested; }

int CatchSignals::exit_code() const noexcept { return 128 + first_signal; }

}  // namespace tigon::app
