#include "backend/cpu/parallel.hpp"

#include <pthread.h>
#include <unistd.h>

namespace tigon::cpu {

namespace {

thread_local bool has_team = false, lost_team = false;

}  // namespace

bool may_start_team() {
  // The handler runs in the one thread that the child has, the copy of the one that forked.
  static const int registered = pthread_atfork(nullptr, nullptr, [] { lost_team = has_team; });
  (void)registered;
  has_team = true;
  return !lost_team;
}

bool larger_than_cache(int64_t bytes) {
  static const int64_t last_level = [] {
    int64_t size = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    size = std::max<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
    // glibc counts the slices of a whole AMD socket, 320 MB and more, of which a core fills only its own: cap it.
    constexpr int64_t kFallback = int64_t{16} << 20, kMost = int64_t{32} << 20;
    return size > 0 ? std::min(size, kMost) : kFallback;
  }();
  return bytes > last_level;
}

}  // namespace tigon::cpu
