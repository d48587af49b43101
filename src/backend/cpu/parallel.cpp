#include "backend/cpu/parallel.hpp"

#include <unistd.h>

namespace tigon::cpu {

bool larger_than_cache(int64_t bytes) {
  static const int64_t last_level = [] {
    int64_t size = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    size = std::max<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
    // The C library may count the slices of every core complex together; a thread reaches one, of 32 MiB at most.
    return size > 0 ? std::min(size, int64_t{32} << 20) : int64_t{16} << 20;
  }();
  return bytes > last_level;
}

}  // namespace tigon::cpu
