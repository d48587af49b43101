#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "train/residency/worker.hpp"

namespace tigon {

// Copies in one direction, in order, beside what computes. A thread carries them out, on a GPU by a stream of its own.
// It starts nothing before the first copy, so that a planner may have one on any machine.
class Lane {
 public:
  explicit Lane(Device device) : device_(device) {}
  ~Lane();  // waits for all copies
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  struct Copy {
    Tensor to;
    Tensor from;
  };
  // Begins when all that compute.stream holds now has happened, and `after` too. In measure mode bytes are counted
  // alone.
  Moment copy(const Context& compute, std::span<const Copy> copies, const Moment& after = {});
  // Begins when `after` has happened, whatever is being computed.
  Moment copy(std::span<const Copy> copies, const Moment& after);
  // Of all copies so far, begun or not.
  int64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  Moment add(std::span<const Copy> copies, const Moment& after);

  std::atomic<int64_t> bytes_ = 0;  // read while another thread copies
  Device device_;
  std::optional<DeviceStream> stream_;
  std::optional<Worker> worker_;
};

}  // namespace tigon
