#include "train/system_calls.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace tigon::test {

namespace {

int64_t reads_left = 0, changes_left = 0;
bool failed = false, exchange_refused = false;
std::atomic<int64_t> threads_left = 0;
std::atomic<bool> no_thread = false;

void before_change() {
  if (changes_left > 0 && --changes_left == 0) _exit(kEnded);
}

}  // namespace

void fail_read(int64_t n) {
  reads_left = n;
  failed = false;
}
bool read_failed() { return failed; }
void end_before_change(int64_t n) { changes_left = n; }
void refuse_exchange(bool refuse) { exchange_refused = refuse; }
void refuse_thread(int64_t n) {
  threads_left = n;
  no_thread = false;
}
bool thread_refused() { return no_thread; }

}  // namespace tigon::test

// The program's own symbols come before those of the libraries, for the libraries as well.
#pragma GCC visibility push(default)
extern "C" {

ssize_t read(int file, void* to, size_t bytes) {
  using namespace tigon::test;
  if (reads_left > 0 && --reads_left == 0) {
    failed = true;
    errno = EIO;
    return -1;
  }
  return syscall(SYS_read, file, to, bytes);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned int flags) noexcept {
  if (tigon::test::exchange_refused && flags != 0) {
    errno = EINVAL;
    return -1;
  }
  tigon::test::before_change();
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* with) noexcept {
  if (tigon::test::threads_left > 0 && --tigon::test::threads_left == 0) {
    tigon::test::no_thread = true;
    return EAGAIN;
  }
  static const auto start = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return start(thread, attributes, run, with);
}

int rename(const char* from, const char* to) noexcept { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int folder, const char* name, int flags) noexcept {
  tigon::test::before_change();
  return static_cast<int>(syscall(SYS_unlinkat, folder, name, flags));
}

int mkdir(const char* name, mode_t mode) noexcept {
  tigon::test::before_change();
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, name, mode));
}

}  // extern "C"
#pragma GCC visibility pop
