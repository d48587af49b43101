#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "tigon/core/device.hpp"
#include "tigon/core/tensor.hpp"

namespace tigon {

// What a block of memory is for: the rows of every memory table.
enum class MemoryClass : uint8_t { weights, gradients, states, layer_inputs, activations, loss, workspace, other };
inline constexpr int kMemoryClassCount = 8;
std::string_view to_string(MemoryClass memory_class) noexcept;

// One block handed out by a MemorySource.
struct Allocation {
  void* data = nullptr;
  int64_t bytes = 0;
  int64_t id = -1;  // the source's own number for it
};

// Where ops and steps take memory from. The kinds are in tigon/memory/arena.hpp; this is all that an op sees of them.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // At least 256-byte aligned. Throws Error when there is not enough.
  virtual Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) = 0;
  virtual void give_back(const Allocation& allocation) noexcept = 0;
  // True when addresses are only for bookkeeping and must not be touched.
  virtual bool measuring() const noexcept { return false; }
};

// A block that goes back to its source when it leaves scope. The source must live until then.
class Buffer {
 public:
  Buffer() = default;
  Buffer(MemorySource& source, std::string_view name, int64_t bytes, MemoryClass memory_class)
      : source_(&source), allocation_(source.take(name, bytes, memory_class)) {}
  Buffer(Buffer&& other) noexcept
      : source_(std::exchange(other.source_, nullptr)), allocation_(std::exchange(other.allocation_, {})) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      source_ = std::exchange(other.source_, nullptr);
      allocation_ = std::exchange(other.allocation_, {});
    }
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { reset(); }

  void reset() noexcept {
    if (source_) source_->give_back(allocation_);
    source_ = nullptr;
    allocation_ = {};
  }

  void* data() const noexcept { return allocation_.data; }
  int64_t bytes() const noexcept { return allocation_.bytes; }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(allocation_.data);
  }

 private:
  MemorySource* source_ = nullptr;
  Allocation allocation_;
};

inline constexpr int kMostThreads = 4096;  // more than that is a mistake, and more than most systems start

// What a call does with its context.
enum class Mode : uint8_t {
  run,      // compute
  measure,  // check arguments and book scratch, in memory that exists only on paper: for a plan
  books,    // the same in the run's own memory, while the device runs what was recorded
};

class Observer;

// How an op runs: where, on which stream, with how many threads, and where its scratch comes from. A plain value;
// it owns nothing. Ops may run in several threads at once, each with a memory source of its own.
struct Context {
  Device device{};
  void* stream = nullptr;          // cudaStream_t on a GPU
  int threads = 0;                 // CPU threads, at most kMostThreads; 0 means all. Results do not depend on it.
  MemorySource* memory = nullptr;  // scratch and intermediates; may stay null for ops that need none
  Observer* observer = nullptr;    // told of every Scope; see tigon/core/scope.hpp
  bool books_only = false;
  std::optional<MemoryClass> books_as{};  // the row of the memory table for all that is taken; else what each is

  Mode mode() const noexcept {
    if (memory != nullptr && memory->measuring()) return Mode::measure;
    return books_only ? Mode::books : Mode::run;
  }
  // An op then checks its arguments, books its scratch and returns without touching data.
  bool measuring() const noexcept { return mode() != Mode::run; }
  // This context for calls whose memory all belongs to one row of the table, as the loss's does.
  Context booked_as(MemoryClass memory_class) const {
    Context same = *this;
    same.books_as = memory_class;
    return same;
  }

  Buffer scratch(std::string_view name, int64_t bytes) const { return take(name, bytes, MemoryClass::workspace); }
  Buffer take(std::string_view name, int64_t bytes, MemoryClass memory_class) const;
};

// A tensor with the memory behind it, which goes back to ctx.memory: that must outlive it.
struct OwnedTensor {
  Buffer buffer;
  Tensor view;

  OwnedTensor() = default;
  OwnedTensor(const Context& ctx, std::string_view name, DType dtype, std::span<const int64_t> sizes,
              MemoryClass memory_class);
  OwnedTensor(const Context& ctx, std::string_view name, DType dtype, std::initializer_list<int64_t> sizes,
              MemoryClass memory_class)
      : OwnedTensor(ctx, name, dtype, std::span<const int64_t>(sizes.begin(), sizes.size()), memory_class) {}
  // What was moved from is absent.
  OwnedTensor(OwnedTensor&& other) noexcept
      : buffer(std::move(other.buffer)), view(std::exchange(other.view, Tensor{})) {}
  OwnedTensor& operator=(OwnedTensor&& other) noexcept {
    buffer = std::move(other.buffer);
    view = std::exchange(other.view, Tensor{});
    return *this;
  }
  operator const Tensor&() const noexcept { return view; }  // NOLINT: reads as the tensor it is
  void reset() noexcept {
    buffer.reset();
    view = {};
  }
};

}  // namespace tigon
