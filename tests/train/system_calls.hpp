#pragma once

#include <cstdint>

// The calls by which this program reads and changes files and starts threads, in a test's hands: system_calls.cpp
// stands before libc's.
namespace tigon::test {

// The n-th read of a file from now on fails as a broken disk's does; 0: none does.
void fail_read(int64_t n);
// Whether that read has come.
bool read_failed();

// The process ends at once, as by a kill, before its n-th change of the file system from now on; 0: it does not.
void end_before_change(int64_t n);
constexpr int kEnded = 99;  // its exit code then

// Renames that exchange two names fail, as on file systems that do not know them.
void refuse_exchange(bool refuse);

// The n-th thread from now on cannot be started; 0: each can.
void refuse_thread(int64_t n);
// Whether that thread was asked for.
bool thread_refused();

}  // namespace tigon::test
