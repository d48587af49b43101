#include "tigon/memory/arena.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "memory/red_zone.hpp"
#include "tigon/core/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace tigon {

namespace {

// Far from what overflows when it is rounded up, or added to other blocks.
constexpr int64_t kLargestBlock = int64_t{1} << 56;

[[noreturn]] void throw_no_machine(std::string_view name, int64_t bytes) {
  throw Error(ErrorCode::out_of_memory, {.where = std::string(name),
                                         .what = "no machine has " + human_bytes(bytes) + " of memory",
                                         .fix = "Use a smaller shape."});
}

void check_size(std::string_view name, int64_t bytes) {
  if (bytes < 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = std::string(name), .what = "a negative number of bytes was asked for"});
  }
  if (bytes > kLargestBlock) throw_no_machine(name, bytes);
}

void check_present(const char* where, const void* memory, int64_t bytes) {
  if (memory != nullptr || bytes <= 0) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = where, .what = "the memory is a null pointer", .expected = std::to_string(bytes) + " bytes"});
}

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

HostMemory::HostMemory(int64_t bytes) : bytes_(bytes) {
  check_size("HostMemory", bytes);
  if (bytes == 0) return;
  void* mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw Error(ErrorCode::out_of_memory, {.where = "HostMemory",
                                           .what = "the system refused " + human_bytes(bytes) + " of host memory",
                                           .fix = "Use a smaller shape, or free memory."});
  }
  // Fewer page faults and TLB misses on large arrays; only a hint.
  if (bytes >= kHugePage) (void)madvise(mapped, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(mapped);
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMemory::~HostMemory() {
  if (data_) (void)munmap(data_, static_cast<size_t>(bytes_));
}

Allocation MeasureArena::take(std::string_view name, int64_t bytes, MemoryClass memory_class) {
  check_size(name, bytes);
  check_size(name, ledger_.live_bytes() + bytes);  // all of them together: the ledger adds them up
  const int64_t id = ledger_.record_birth(name, bytes, memory_class);
  void* address = reinterpret_cast<void*>(next_address_);  // NOLINT: never dereferenced
  next_address_ += static_cast<uintptr_t>(align_up(std::max<int64_t>(1, bytes)));
  return {address, bytes, id};
}

void MeasureArena::give_back(const Allocation& allocation) noexcept { ledger_.record_death(allocation.id); }

ReplayArena::ReplayArena(const Plan& plan, std::byte* memory, int64_t bytes, bool host_memory)
    : plan_(plan), memory_(memory), host_memory_(host_memory) {
  if (bytes < plan.bytes()) {
    throw Error(ErrorCode::out_of_memory, {.where = "ReplayArena",
                                           .what = "the memory is smaller than the plan",
                                           .expected = std::to_string(plan.bytes()) + " bytes",
                                           .got = std::to_string(bytes)});
  }
  check_present("ReplayArena", memory, plan.bytes());
  if (reinterpret_cast<uintptr_t>(memory) % kMemoryAlignment != 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "ReplayArena",
                 .what = "the memory is misaligned, and so would be every block of the plan",
                 .expected = "a multiple of " + std::to_string(kMemoryAlignment) + " bytes",
                 .fix = "Take it from HostMemory or DeviceMemory."});
  }
  if (kRedZone > 0 && host_memory_ && plan.bytes() > 0) {
    // Several plans may share memory in turn: another arena may have closed it already.
    ASAN_UNPOISON_MEMORY_REGION(memory_, static_cast<size_t>(plan.bytes()));
    std::memset(memory_, static_cast<int>(kPoison), static_cast<size_t>(plan.bytes()));
    ASAN_POISON_MEMORY_REGION(memory_, static_cast<size_t>(plan.bytes()));
  }
}

ReplayArena::~ReplayArena() {
  // The pages may be handed to somebody else next.
  if (host_memory_) ASAN_UNPOISON_MEMORY_REGION(memory_, static_cast<size_t>(plan_.bytes()));
}

Allocation ReplayArena::take(std::string_view name, int64_t bytes, MemoryClass memory_class) {
  const auto& blocks = plan_.blocks();
  if (next_ >= blocks.size() || blocks[next_].life.name != name || blocks[next_].life.bytes != bytes ||
      blocks[next_].life.memory_class != memory_class) {
    const std::string expected =
        next_ < blocks.size() ? fmt::format("'{}' of {} bytes", blocks[next_].life.name, blocks[next_].life.bytes)
                              : "nothing more";
    throw Error(ErrorCode::internal, {.where = "ReplayArena",
                                      .what = "the run departs from its plan at block " + std::to_string(next_),
                                      .expected = expected,
                                      .got = fmt::format("'{}' of {} bytes", name, bytes),
                                      .fix = "Measure the same sequence that is run."});
  }
  const auto id = static_cast<int64_t>(next_);
  const Plan::Block& block = blocks[next_];
  for (const int64_t held : held_) {
    const Plan::Block& other = blocks[static_cast<size_t>(held)];
    if (block.offset + block.life.granted <= other.offset || other.offset + other.life.granted <= block.offset)
      continue;
    throw Error(ErrorCode::internal,
                {.where = "ReplayArena",
                 .what = fmt::format("the run departs from its plan at block {}: its bytes are still held", next_),
                 .expected = fmt::format("'{}' given back before '{}' is taken", other.life.name, name),
                 .fix = "Measure the same sequence that is run."});
  }
  held_.push_back(id);
  ++next_;
  used_ = std::max(used_, block.offset + block.life.granted + kRedZone);
  std::byte* data = memory_ + block.offset;
  if (host_memory_) ASAN_UNPOISON_MEMORY_REGION(data, static_cast<size_t>(bytes));
  return {data, bytes, id};
}

void ReplayArena::give_back(const Allocation& allocation) noexcept {
  std::erase(held_, allocation.id);
  if (kRedZone == 0 || !host_memory_) return;
  std::memset(allocation.data, static_cast<int>(kPoison), static_cast<size_t>(allocation.bytes));
  ASAN_POISON_MEMORY_REGION(allocation.data, static_cast<size_t>(allocation.bytes));
}

void ReplayArena::restart() {
  if (next_ != plan_.blocks().size()) {
    throw Error(ErrorCode::internal, {.where = "ReplayArena",
                                      .what = "the run ended before its plan",
                                      .expected = std::to_string(plan_.blocks().size()) + " blocks",
                                      .got = std::to_string(next_)});
  }
  next_ = 0;
}

StackArena::StackArena(void* memory, int64_t bytes) : memory_(static_cast<std::byte*>(memory)), bytes_(bytes) {
  check_present("StackArena", memory, bytes);
}

StackArena StackArena::measuring_arena() {
  // An aligned address on paper, far from anything real.
  StackArena arena(reinterpret_cast<void*>(uintptr_t{1} << 46), int64_t{1} << 45);  // NOLINT
  arena.measuring_ = true;
  return arena;
}

Allocation StackArena::take(std::string_view name, int64_t bytes, MemoryClass) {
  check_size(name, bytes);
  // The caller's pointer may have any alignment: align the address, not the offset.
  const auto address = reinterpret_cast<uintptr_t>(memory_) + static_cast<uintptr_t>(top_);
  const int64_t start = top_ + static_cast<int64_t>(-address % kMemoryAlignment);
  if (bytes > bytes_ - start) {
    if (measuring_) throw_no_machine(name, bytes);
    throw Error(ErrorCode::out_of_memory, {.where = std::string(name),
                                           .what = "the scratch memory is too small",
                                           .expected = fmt::format("at least {} more bytes at offset {}", bytes, start),
                                           .got = fmt::format("{} bytes in all", bytes_),
                                           .fix = "Ask the op's scratch function for the size and pass that much."});
  }
  const int64_t previous_top = top_;
  top_ = start + bytes;
  high_water_ = std::max(high_water_, top_);
  return {memory_ + start, bytes, previous_top};
}

void StackArena::give_back(const Allocation& allocation) noexcept {
  if (static_cast<std::byte*>(allocation.data) + allocation.bytes == memory_ + top_) top_ = allocation.id;
}

Allocation HeapArena::take(std::string_view name, int64_t bytes, MemoryClass memory_class) {
  check_size(name, bytes);
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kMemoryAlignment;
  const auto size = static_cast<size_t>(align_up(std::max<int64_t>(1, bytes), alignment));
  void* data = std::aligned_alloc(static_cast<size_t>(alignment), size);
  if (data != nullptr && bytes >= kHugePage) (void)madvise(data, size, MADV_HUGEPAGE);
  if (data == nullptr) {
    throw Error(ErrorCode::out_of_memory,
                {.where = std::string(name), .what = "the system refused " + human_bytes(bytes) + " of host memory"});
  }
  const int64_t id = ledger_ ? ledger_->record_birth(name, bytes, memory_class) : -1;
  return {data, bytes, id};
}

void HeapArena::give_back(const Allocation& allocation) noexcept {
  if (ledger_) ledger_->record_death(allocation.id);
  std::free(allocation.data);
}

}  // namespace tigon
