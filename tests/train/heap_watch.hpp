#pragma once

#include <cstdint>

// How much this program holds by operator new: heap_watch.cpp stands before the library's.
namespace tigon::test {

int64_t heap_bytes();
// The most it held since the last call of watch_heap.
int64_t heap_peak();
void watch_heap();

}  // namespace tigon::test
