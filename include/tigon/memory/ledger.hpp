#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/core/context.hpp"

namespace tigon {

// Every block is granted in multiples of this, on every device.
inline constexpr int64_t kMemoryAlignment = 256;

constexpr int64_t align_up(int64_t bytes, int64_t alignment = kMemoryAlignment) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

// One block's life. Time is counted in ledger events: each birth and each death is one tick.
struct LedgerEntry {
  std::string name;
  MemoryClass memory_class = MemoryClass::other;
  int64_t bytes = 0;    // as asked for
  int64_t granted = 0;  // rounded up to kMemoryAlignment
  int64_t birth = 0;
  int64_t death = -1;  // -1: still alive
};

// Who holds which bytes, when. Arenas write it; tables, plans and snapshots read it.
class Ledger {
 public:
  int64_t record_birth(std::string_view name, int64_t bytes, MemoryClass memory_class);
  void record_death(int64_t id) noexcept;
  void clear() noexcept;

  const std::vector<LedgerEntry>& entries() const noexcept { return entries_; }
  int64_t now() const noexcept { return now_; }
  int64_t live_bytes() const noexcept { return live_; }
  int64_t peak_bytes() const noexcept { return peak_; }
  // The blocks alive when the peak was reached, largest first.
  std::vector<LedgerEntry> alive_at_peak() const;
  // Granted bytes at the peak, summed by class.
  std::array<int64_t, kMemoryClassCount> peak_by_class() const;

 private:
  std::vector<LedgerEntry> entries_;
  int64_t now_ = 0;
  int64_t live_ = 0;
  int64_t peak_ = 0;
  int64_t peak_time_ = 0;
};

// A table of the peak: by class, then the largest blocks alive at it.
std::string peak_report(const Ledger& ledger, int max_blocks = 12);

// "1.5 GiB", "312 KiB", "17 B".
std::string human_bytes(int64_t bytes);

}  // namespace tigon
