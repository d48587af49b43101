#pragma once

#include <pthread.h>

#include <csignal>
#include <initializer_list>

namespace tigon::cpu {

// While it lives, this thread takes no signals but those of its own faults. oneDNN's generated products keep a pointer
// to data where the stack pointer belongs (seen in 2.6: in the heap); what the system saves there for a handler would
// overwrite what lies below.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    (void)sigfillset(&held);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) (void)sigdelset(&held, fault);
    (void)pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalsHeld() { (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

}  // namespace tigon::cpu
