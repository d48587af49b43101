#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tigon/core/context.hpp"
#include "tigon/memory/ledger.hpp"
#include "tigon/memory/plan.hpp"

namespace tigon {

// Page-aligned host memory, taken once and returned once.
class HostMemory {
 public:
  explicit HostMemory(int64_t bytes);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&&) = delete;

  std::byte* data() const noexcept { return data_; }
  int64_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// The four kinds of MemorySource. A step is walked once with a MeasureArena, packed into a Plan, and then run any
// number of times with a ReplayArena. Scratch passed in by a caller is a StackArena; a HeapArena serves one-off calls
// and tests.

// Hands out addresses that exist only on paper and writes each birth and death into the ledger.
class MeasureArena final : public MemorySource {
 public:
  explicit MeasureArena(Ledger& ledger) : ledger_(ledger) {}
  Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) override;
  void give_back(const Allocation& allocation) noexcept override;
  bool measuring() const noexcept override { return true; }

 private:
  Ledger& ledger_;
  uintptr_t next_address_ = uintptr_t{1} << 46;
};

// Repeats a planned sequence inside one block of memory. Asking for anything the plan did not foresee, or for bytes
// that are held longer than planned, is an internal error, so planned bytes and used bytes are equal by construction.
// Several of them may share memory, one after the other. Debug builds surround blocks with guarded zones and fill freed
// memory with NaN.
class ReplayArena final : public MemorySource {
 public:
  // `memory` must hold plan.bytes(), aligned to kMemoryAlignment, and outlive the arena, as must the plan.
  ReplayArena(const Plan& plan, std::byte* memory, int64_t bytes, bool host_memory = true);
  ReplayArena(const Plan&&, std::byte*, int64_t, bool = true) = delete;  // a temporary plan would be gone at once
  ~ReplayArena() override;
  ReplayArena(const ReplayArena&) = delete;
  ReplayArena& operator=(const ReplayArena&) = delete;
  Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) override;
  void give_back(const Allocation& allocation) noexcept override;
  // Back to the start of the sequence, for the next step. Throws unless the sequence was walked to its end: where an
  // error ended it before, go on with a new arena on the same memory.
  void restart();
  // End of the highest block handed out so far.
  int64_t used_bytes() const noexcept { return used_; }

 private:
  const Plan& plan_;
  std::byte* memory_;
  bool host_memory_;
  std::vector<int64_t> held_;  // blocks not given back yet
  size_t next_ = 0;
  int64_t used_ = 0;
};

// A stack over memory the caller owns: what scratch pointers of the C ABI become. Only the top block is reclaimed: one
// given back out of order stays taken, and so do those below it.
class StackArena final : public MemorySource {
 public:
  // `memory` of any alignment; null only with 0 bytes.
  StackArena(void* memory, int64_t bytes);
  // One without memory that finds out how much a call needs.
  static StackArena measuring_arena();

  Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) override;
  void give_back(const Allocation& allocation) noexcept override;
  bool measuring() const noexcept override { return measuring_; }
  // Enough for everything taken so far, wherever the caller's memory starts.
  int64_t bytes_needed() const noexcept { return high_water_ == 0 ? 0 : high_water_ + kMemoryAlignment; }

 private:
  std::byte* memory_;
  int64_t bytes_;
  bool measuring_ = false;
  int64_t top_ = 0;
  int64_t high_water_ = 0;
};

// Each block from the heap. Give it a ledger to see what was taken.
class HeapArena final : public MemorySource {
 public:
  explicit HeapArena(Ledger* ledger = nullptr) : ledger_(ledger) {}
  Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) override;
  void give_back(const Allocation& allocation) noexcept override;

 private:
  Ledger* ledger_;
};

}  // namespace tigon
