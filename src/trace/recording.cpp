#include "tigon/trace/recording.hpp"

#include <algorithm>

namespace tigon {

std::string Recording::text(const RecordedScope& scope) const {
  return name(scope.name) + (scope.index < 0 ? "" : "." + std::to_string(scope.index));
}

size_t Recording::events_until(int64_t step) const {
  for (const RecordedScope& scope : scopes) {
    if (scope.index != step || scope.end < 0 || name(scope.name) != kStepScope) continue;
    const auto after = std::upper_bound(memory.begin(), memory.end(), scope.end,
                                        [](int64_t time, const MemoryEvent& event) { return time < event.time; });
    return static_cast<size_t>(after - memory.begin());
  }
  return memory.size();
}

int64_t Recording::peak_bytes() const {
  int64_t live = 0, peak = 0;
  for (const MemoryEvent& event : memory) {
    const int64_t bytes = blocks[static_cast<size_t>(event.block)].granted;
    live += event.birth ? bytes : -bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace tigon
