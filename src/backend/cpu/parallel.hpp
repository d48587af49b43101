#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tigon/core/context.hpp"

namespace tigon::cpu {

// Whether this thread may start a team of threads. In a child process it may not where it had one before the fork:
// OpenMP counts on the threads of its last team, of which the child has no copy, and would wait for them for ever.
bool may_start_team();

inline int thread_count(const Context& ctx) { return ctx.threads > 0 ? ctx.threads : omp_get_max_threads(); }

// While it lives, libraries that this thread calls start no threads of their own.
class NoInnerThreads {
 public:
  NoInnerThreads() { omp_set_num_threads(1); }
  ~NoInnerThreads() { omp_set_num_threads(outer_); }
  NoInnerThreads(const NoInnerThreads&) = delete;
  NoInnerThreads& operator=(const NoInnerThreads&) = delete;

 private:
  int outer_ = omp_get_max_threads();
};

// Runs body(task), or body(task, worker), for each task in [0, tasks), each on one thread. What a task covers must not
// depend on the number of threads; then neither does the result. Tasks must not throw. `worker` says whose scratch a
// task may use, less than thread_count and than tasks. OpenMP's number of the thread would not do: without a team here
// it is the one that the caller's thread has in a team of the caller's.
template <class Body>
void parallel_tasks(const Context& ctx, int64_t tasks, const Body& body) {
  const auto run = [&](int64_t task, int worker) {
    if constexpr (std::is_invocable_v<const Body&, int64_t, int>) {
      body(task, worker);
    } else {
      body(task);
    }
  };
  const int threads = static_cast<int>(std::min<int64_t>(thread_count(ctx), tasks));
  if (threads <= 1 || !may_start_team()) {  // a team of one would still make system calls
    const NoInnerThreads alone;
    for (int64_t task = 0; task < tasks; ++task) run(task, 0);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const NoInnerThreads alone;
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; ++task) run(task, omp_get_thread_num());
  }
}

// A range cut into at most `max_blocks` equal blocks of at least `min_block` elements.
struct Blocks {
  int64_t count = 0;
  int64_t total = 0;

  Blocks(int64_t elements, int64_t min_block, int64_t max_blocks)
      : count(std::clamp<int64_t>(elements / std::max<int64_t>(1, min_block), 1, max_blocks)), total(elements) {}
  int64_t begin(int64_t block) const { return total / count * block + std::min(block, total % count); }
  int64_t end(int64_t block) const { return begin(block + 1); }
};

// Rows of `row_bytes` in blocks of at least 64 KiB: small enough to share evenly, large enough to be worth a task.
inline Blocks row_blocks(int64_t rows, int64_t row_bytes, int64_t max_blocks = 1024) {
  return {rows, std::max<int64_t>(1, (int64_t{64} << 10) / std::max<int64_t>(1, row_bytes)), max_blocks};
}

// True for outputs so large that they cannot be in cache when they are read next: those are stored past the cache.
bool larger_than_cache(int64_t bytes);

}  // namespace tigon::cpu
