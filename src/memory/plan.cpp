#include "tigon/memory/plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "memory/red_zone.hpp"

namespace tigon {

namespace {

int64_t end_of_life(const LedgerEntry& entry) {
  return entry.death < 0 ? std::numeric_limits<int64_t>::max() : entry.death;
}

bool lives_overlap(const LedgerEntry& a, const LedgerEntry& b) {
  return a.birth < end_of_life(b) && b.birth < end_of_life(a);
}

int64_t footprint(const LedgerEntry& entry) { return entry.granted + 2 * kRedZone; }

}  // namespace

Plan Plan::pack(const Ledger& measured) {
  Plan plan;
  plan.lower_bound_ = measured.peak_bytes();
  plan.blocks_.reserve(measured.entries().size());
  for (const LedgerEntry& entry : measured.entries()) plan.blocks_.push_back({entry, 0});

  std::vector<size_t> order(plan.blocks_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return plan.blocks_[a].life.granted > plan.blocks_[b].life.granted; });

  // Placed blocks by rising offset, so that the first gap found is the lowest.
  std::vector<size_t> placed;
  for (const size_t index : order) {
    Block& block = plan.blocks_[index];
    const int64_t need = footprint(block.life);
    int64_t offset = 0;
    for (const size_t other_index : placed) {
      const Block& other = plan.blocks_[other_index];
      if (!lives_overlap(block.life, other.life)) continue;
      if (other.offset - kRedZone >= offset + need) break;
      offset = std::max(offset, other.offset - kRedZone + footprint(other.life));
    }
    block.offset = offset + kRedZone;
    plan.bytes_ = std::max(plan.bytes_, offset + need);
    const auto position = std::upper_bound(placed.begin(), placed.end(), block.offset,
                                           [&](int64_t value, size_t i) { return value < plan.blocks_[i].offset; });
    placed.insert(position, index);
  }
  return plan;
}

}  // namespace tigon
