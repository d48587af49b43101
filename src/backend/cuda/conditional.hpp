#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tigon/core/context.hpp"

namespace tigon::cuda {

// A part of some work that is needed where *count > begin, which only the GPU knows, when it gets there.
struct Part {
  int64_t begin;
  std::function<void(const Context&)> run;  // queues it on the stream of the context that it is given
};

// Queues the parts one after the other so that the GPU skips those which are not needed, while the host waits for
// nothing. Parts are recorded and run later: what they take from the context's memory must not go back to a system
// before run_needed returns. A driver that cannot skip runs all of them, so a part that is not needed must do no harm.
void run_needed(const Context& ctx, const int64_t* count, const std::vector<Part>& parts);

}  // namespace tigon::cuda
