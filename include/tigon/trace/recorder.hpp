#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "tigon/core/scope.hpp"
#include "tigon/memory/plan.hpp"
#include "tigon/trace/recording.hpp"

namespace tigon {

// Records scopes of any thread, and births and deaths in memory that follows a plan, between begin() and end(). It
// keeps at most so many of each, and says so where there were more.
class Recorder final : public Observer {
 public:
  static constexpr size_t kMostEvents = size_t{1} << 20;

  Recorder();
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Before anything is recorded. Where the memory is, and what stays in it from step to step.
  void set_memory(Device device, uint64_t address, std::vector<MemoryRegion> regions);
  void add_resident(const Plan& plan, int64_t offset);
  // `source`, watched: each of its blocks is the plan's of that number, from `offset` on. Both must outlive what takes
  // memory there.
  MemorySource& watch(MemorySource& source, const Plan& plan, int64_t offset);

  // Between steps. With `activities` also what runs on a GPU, as far as that can be seen there.
  void begin(int64_t step, bool activities);
  // After the last of them is done. Waits for no thread: a scope that is still open stays so.
  void end(int64_t step);
  bool on() const noexcept { return on_; }

  void enter(const Context& ctx, std::string_view name, int64_t index) override;
  void leave(const Context& ctx) noexcept override;
  Observer* beside() noexcept override { return this; }

  // After end().
  const Recording& recording() const noexcept { return recording_; }
  // Lets go of it.
  void forget() { recording_ = {}; }

 private:
  class WatchedMemory;

  // The open scopes of a thread; negative where one is not recorded.
  struct Thread {
    int32_t number = 0;
    std::vector<int32_t> open;
  };
  Thread& this_thread();
  int32_t place_of(std::string_view name);
  int32_t add_block(const LedgerEntry& life, int64_t offset, int32_t scope);
  int32_t born(const LedgerEntry& life, int64_t offset);
  void died(int32_t block) noexcept;

  struct Resident {
    const Plan* plan;
    int64_t offset;
  };

  std::atomic<bool> on_ = false;
  std::mutex mutex_;
  Recording recording_;
  std::map<std::string, int32_t, std::less<>> places_;
  std::map<std::thread::id, Thread> threads_;
  std::vector<Resident> residents_;
  std::vector<std::unique_ptr<WatchedMemory>> watched_;
  std::optional<DeviceTrace> device_trace_;
};

}  // namespace tigon
