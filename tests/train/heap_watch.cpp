#include "train/heap_watch.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace tigon::test {

namespace {

std::atomic<int64_t> held{0}, most{0};

}  // namespace

int64_t heap_bytes() { return held; }
int64_t heap_peak() { return most; }
void watch_heap() { most = held.load(); }

}  // namespace tigon::test

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  using namespace tigon::test;
  void* data = std::malloc(bytes > 0 ? bytes : 1);
  if (data == nullptr) return nullptr;
  const int64_t now = held += static_cast<int64_t>(malloc_usable_size(data));
  int64_t before = most;
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
  return data;
}

void* operator new(size_t bytes) {
  if (void* data = operator new(bytes, std::nothrow)) return data;
  throw std::bad_alloc();
}

void operator delete(void* data) noexcept {
  if (data == nullptr) return;
  tigon::test::held -= static_cast<int64_t>(malloc_usable_size(data));
  std::free(data);
}

void operator delete(void* data, size_t) noexcept { operator delete(data); }
