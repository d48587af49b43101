#pragma once

#include <optional>
#include <span>

#include "train/residency/worker.hpp"

namespace tigon {

// Copies in one direction, in order, beside what computes. A thread carries them out, on a GPU by a stream of its own.
// It starts nothing before the first copy, so that a planner may have one on any machine.
class Lane {
 public:
  explicit Lane(Device device, const char* name = "copy") : device_(device), name_(name) {}
  ~Lane();  // waits for all copies
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  struct Copy {
    Tensor to;
    Tensor from;
  };
  // Begins when all that compute.stream holds now has happened, and `after` too. Nothing happens in measure mode.
  Moment copy(const Context& compute, std::span<const Copy> copies, const Moment& after = {});
  // Of all copies so far, begun or not.
  int64_t bytes() const noexcept { return bytes_; }

 private:
  int64_t bytes_ = 0;
  Device device_;
  const char* name_;  // of the scope around each copy
  std::optional<DeviceStream> stream_;
  std::optional<Worker> worker_;
};

}  // namespace tigon
