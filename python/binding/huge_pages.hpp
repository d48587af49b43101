#pragma once

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tigon::python {

// Asks for huge pages where `bytes` from `data` on are about to be written. What torch allocates beyond 32 MiB has just
// been mapped, and the first touch of each small page would take longer than most ops. Not worth it for little memory;
// where the kernel does not do it, nothing happens.
inline void want_huge_pages(void* data, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr int64_t kLeast = int64_t{8} << 20;
  constexpr uintptr_t kPage = 65536;  // a multiple of every kernel's
  if (data == nullptr || bytes < kLeast) return;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace tigon::python
