#include "tigon/train/plan_timeline.hpp"

#include <map>

namespace tigon {

namespace {

class Timeline {
 public:
  explicit Timeline(const MemoryPlan& plan) {
    t_.unit = "events";
    t_.total_bytes = plan.total_bytes();
    t_.places = {""};
    for (const Plan::Block& block : plan.residents.plan.blocks()) add(block, 0, 0, true);
    for (const Phase phase : {Phase::step, Phase::further, Phase::update}) append(plan[phase], plan.resident_bytes());
  }
  MemoryTimeline take() { return std::move(t_); }

 private:
  void append(const Sequence& sequence, int64_t region) {
    const int64_t end = now_ + sequence.ledger.now();
    for (const Sequence::Mark& mark : sequence.marks) {
      if (!t_.phases.empty()) t_.phases.back().end = now_ + mark.tick;
      t_.phases.push_back({.name = mark.phase, .begin = now_ + mark.tick, .end = end});
    }
    for (const Plan::Block& block : sequence.plan.blocks()) add(block, now_, region, false);
    now_ = end;
  }

  void add(const Plan::Block& block, int64_t begin, int64_t region, bool stays) {
    const LedgerEntry& life = block.life;
    const auto [known, is_new] = names_.try_emplace(life.name, static_cast<int32_t>(t_.names.size()));
    if (is_new) t_.names.push_back(life.name);
    t_.blocks.push_back({.name = known->second,
                         .memory_class = life.memory_class,
                         .bytes = life.granted,
                         .offset = region + block.offset,
                         .birth = stays ? 0 : begin + life.birth,
                         .death = stays || life.death < 0 ? -1 : begin + life.death});
  }

  MemoryTimeline t_;
  std::map<std::string, int32_t> names_;
  int64_t now_ = 1;  // what stays is there before the first event
};

}  // namespace

MemoryTimeline memory_timeline(const MemoryPlan& plan) { return Timeline(plan).take(); }

}  // namespace tigon
