#include "tigon/trace/recorder.hpp"

#include <chrono>

namespace tigon {

namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// Hands everything on to the source, and tells what came of it. A plan numbers its blocks in the order of their births,
// and so do the arenas.
class Recorder::WatchedMemory final : public MemorySource {
 public:
  WatchedMemory(Recorder& recorder, MemorySource& source, const Plan& plan, int64_t offset)
      : recorder_(recorder), source_(source), plan_(plan), offset_(offset), blocks_(plan.blocks().size(), -1) {}

  Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) override {
    const Allocation taken = source_.take(name, bytes, memory_class);
    if (recorder_.on_) {
      const auto id = static_cast<size_t>(taken.id);
      const Plan::Block& block = plan_.blocks()[id];
      blocks_[id] = recorder_.born(block.life, offset_ + block.offset);
    }
    return taken;
  }
  void give_back(const Allocation& allocation) noexcept override {
    source_.give_back(allocation);
    int32_t& block = blocks_[static_cast<size_t>(allocation.id)];
    if (block >= 0) recorder_.died(block);
    block = -1;
  }
  bool measuring() const noexcept override { return source_.measuring(); }

 private:
  Recorder& recorder_;
  MemorySource& source_;
  const Plan& plan_;
  int64_t offset_;
  std::vector<int32_t> blocks_;  // of the recording, by the plan's number
};

Recorder::Recorder() = default;
Recorder::~Recorder() = default;

void Recorder::set_memory(Device device, uint64_t address, std::vector<MemoryRegion> regions) {
  recording_.device = device;
  recording_.address = address;
  recording_.regions = std::move(regions);
}

void Recorder::add_resident(const Plan& plan, int64_t offset) { residents_.push_back({&plan, offset}); }

MemorySource& Recorder::watch(MemorySource& source, const Plan& plan, int64_t offset) {
  return *watched_.emplace_back(std::make_unique<WatchedMemory>(*this, source, plan, offset));
}

void Recorder::begin(int64_t step, bool activities) {
  const std::lock_guard lock(mutex_);
  (void)this_thread();  // the first
  recording_.first_step = step;
  if (activities && recording_.device.kind != DeviceKind::cpu) {
    recording_.description = describe_device(recording_.device);
    device_trace_.emplace(recording_.device);
    recording_.note = device_trace_->fault();
  }
  for (const Resident& resident : residents_) {
    for (const Plan::Block& block : resident.plan->blocks()) {
      recording_.memory.push_back({now(), add_block(block.life, resident.offset + block.offset, -1), true});
    }
  }
  on_ = true;
}

void Recorder::end(int64_t step) {
  const std::lock_guard lock(mutex_);
  on_ = false;
  recording_.last_step = step;
  if (!device_trace_) return;
  bool cut = false;
  recording_.activities = device_trace_->finish(cut);
  recording_.cut = recording_.cut || cut;
  device_trace_.reset();
}

Recorder::Thread& Recorder::this_thread() {
  const auto number = static_cast<int32_t>(threads_.size());
  return threads_.try_emplace(std::this_thread::get_id(), Thread{.number = number, .open = {}}).first->second;
}

int32_t Recorder::place_of(std::string_view name) {
  const auto known = places_.find(name);
  if (known != places_.end()) return known->second;
  const auto place = static_cast<int32_t>(recording_.names.size());
  recording_.names.emplace_back(name);
  places_.emplace(name, place);
  return place;
}

void Recorder::enter(const Context& ctx, std::string_view name, int64_t index) {
  const std::lock_guard lock(mutex_);
  Thread& thread = this_thread();
  const bool room = recording_.scopes.size() < kMostEvents;
  recording_.cut = recording_.cut || (on_ && !room);
  if (!on_ || !room) {
    // Its leave must not be taken for that of the scope around it.
    if (!thread.open.empty()) thread.open.push_back(-1);
    return;
  }
  const auto place = static_cast<int32_t>(recording_.scopes.size());
  recording_.scopes.push_back({.name = place_of(name),
                               .index = index,
                               .parent = thread.open.empty() ? -1 : thread.open.back(),
                               .thread = thread.number,
                               .begin = now()});
  thread.open.push_back(place);
  if (device_trace_ && ctx.device.kind != DeviceKind::cpu) device_trace_->enter(place);
}

void Recorder::leave(const Context& ctx) noexcept {
  const std::lock_guard lock(mutex_);
  Thread& thread = this_thread();
  if (thread.open.empty()) return;
  const int32_t place = thread.open.back();
  thread.open.pop_back();
  if (place < 0) return;
  if (device_trace_ && ctx.device.kind != DeviceKind::cpu) device_trace_->leave();
  recording_.scopes[static_cast<size_t>(place)].end = now();
}

int32_t Recorder::add_block(const LedgerEntry& life, int64_t offset, int32_t scope) {
  recording_.blocks.push_back({.name = place_of(life.name),
                               .memory_class = life.memory_class,
                               .bytes = life.bytes,
                               .granted = life.granted,
                               .offset = offset,
                               .scope = scope});
  return static_cast<int32_t>(recording_.blocks.size()) - 1;
}

int32_t Recorder::born(const LedgerEntry& life, int64_t offset) {
  const std::lock_guard lock(mutex_);
  // A death of each of them must still have room.
  if (recording_.blocks.size() >= kMostEvents) {
    recording_.cut = true;
    return -1;
  }
  const Thread& thread = this_thread();
  const int32_t block = add_block(life, offset, thread.open.empty() ? -1 : thread.open.back());
  recording_.memory.push_back({now(), block, true});
  return block;
}

void Recorder::died(int32_t block) noexcept {
  const std::lock_guard lock(mutex_);
  if (on_) recording_.memory.push_back({now(), block, false});
}

}  // namespace tigon
