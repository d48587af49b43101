#pragma once

#include "tigon/core/context.hpp"

namespace tigon {

// Walks a step for its memory alone: ops take and give back what they would, and do nothing else. So the host knows
// where everything lies while the device runs what was recorded.
class Bookkeeping final : public MemorySource {
 public:
  explicit Bookkeeping(MemorySource& source) : source_(source) {}
  Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) override {
    return source_.take(name, bytes, memory_class);
  }
  void give_back(const Allocation& allocation) noexcept override { source_.give_back(allocation); }
  bool measuring() const noexcept override { return true; }

 private:
  MemorySource& source_;
};

}  // namespace tigon
