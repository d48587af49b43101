#include "tigon/memory/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tigon {

int64_t Ledger::record_birth(std::string_view name, int64_t bytes, MemoryClass memory_class) {
  const int64_t granted = align_up(bytes);
  entries_.push_back({std::string(name), memory_class, bytes, granted, now_, -1});
  ++now_;
  live_ += granted;
  if (live_ > peak_) {
    peak_ = live_;
    peak_time_ = now_ - 1;
  }
  return static_cast<int64_t>(entries_.size()) - 1;
}

void Ledger::record_death(int64_t id) noexcept {
  // A block from before clear(), or one given back twice, is not alive here.
  if (id < 0 || id >= static_cast<int64_t>(entries_.size()) || entries_[static_cast<size_t>(id)].death >= 0) return;
  LedgerEntry& entry = entries_[static_cast<size_t>(id)];
  entry.death = now_++;
  live_ -= entry.granted;
}

void Ledger::clear() noexcept { *this = Ledger(); }

std::vector<LedgerEntry> Ledger::alive_at_peak() const {
  std::vector<LedgerEntry> alive;
  for (const LedgerEntry& entry : entries_) {
    if (entry.birth <= peak_time_ && (entry.death < 0 || entry.death > peak_time_)) alive.push_back(entry);
  }
  std::stable_sort(alive.begin(), alive.end(), [](const auto& a, const auto& b) { return a.granted > b.granted; });
  return alive;
}

std::array<int64_t, kMemoryClassCount> Ledger::peak_by_class() const {
  std::array<int64_t, kMemoryClassCount> sums{};
  for (const LedgerEntry& entry : alive_at_peak()) sums[static_cast<size_t>(entry.memory_class)] += entry.granted;
  return sums;
}

std::string human_bytes(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", value * 0x1p-30);
  if (bytes >= int64_t{1} << 20) return fmt::format("{:.1f} MiB", value * 0x1p-20);
  if (bytes >= int64_t{1} << 10) return fmt::format("{:.1f} KiB", value * 0x1p-10);
  return fmt::format("{} B", bytes);
}

std::string peak_report(const Ledger& ledger, int max_blocks) {
  std::string text = fmt::format("peak {} ({} bytes)\n", human_bytes(ledger.peak_bytes()), ledger.peak_bytes());
  const auto by_class = ledger.peak_by_class();
  for (int c = 0; c < kMemoryClassCount; ++c) {
    if (by_class[static_cast<size_t>(c)] == 0) continue;
    text += fmt::format("  {:<12} {:>12}\n", to_string(static_cast<MemoryClass>(c)),
                        human_bytes(by_class[static_cast<size_t>(c)]));
  }
  const auto alive = ledger.alive_at_peak();
  const size_t shown = std::min(alive.size(), static_cast<size_t>(std::max(0, max_blocks)));
  for (size_t i = 0; i < shown; ++i) {
    text += fmt::format("    {:>12}  {}  ({})\n", human_bytes(alive[i].granted), alive[i].name,
                        to_string(alive[i].memory_class));
  }
  if (shown < alive.size()) text += fmt::format("    and {} smaller blocks\n", alive.size() - shown);
  return text;
}

}  // namespace tigon
