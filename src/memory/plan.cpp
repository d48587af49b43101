#include "tigon/memory/plan.hpp"

#include <algorithm>
#include <numeric>

#include "memory/occupancy.hpp"
#include "memory/red_zone.hpp"

namespace tigon {

Plan Plan::pack(const Ledger& measured) {
  Plan plan;
  plan.lower_bound_ = measured.peak_bytes();
  plan.blocks_.reserve(measured.entries().size());
  for (const LedgerEntry& entry : measured.entries()) plan.blocks_.push_back({entry, 0});

  std::vector<size_t> order(plan.blocks_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return plan.blocks_[a].life.granted > plan.blocks_[b].life.granted; });

  // Time is counted in births: block i lives from i to the first birth after its death.
  const auto end_of_life = [&](const LedgerEntry& entry) {
    if (entry.death < 0) return static_cast<int64_t>(plan.blocks_.size());
    const auto next = std::lower_bound(plan.blocks_.begin(), plan.blocks_.end(), entry.death,
                                       [](const Block& block, int64_t time) { return block.life.birth < time; });
    return static_cast<int64_t>(next - plan.blocks_.begin());
  };
  Occupancy occupied(static_cast<int64_t>(plan.blocks_.size()));
  for (const size_t index : order) {
    Block& block = plan.blocks_[index];
    const auto first = static_cast<int64_t>(index);
    const int64_t last = end_of_life(block.life), need = block.life.granted + 2 * kRedZone;
    const int64_t offset = occupied.lowest_gap(first, last, need);
    occupied.take(first, last, {offset, offset + need});
    block.offset = offset + kRedZone;
    plan.bytes_ = std::max(plan.bytes_, offset + need);
  }
  return plan;
}

}  // namespace tigon
