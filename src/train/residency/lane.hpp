#pragma once

#include <optional>
#include <span>

#include "train/residency/disk_copies.hpp"
#include "train/residency/worker.hpp"

namespace tigon {

// Copies in one direction, in order, beside what computes. A thread carries them out, on a GPU by a stream of its own.
// It starts nothing before the first copy, so that a planner may have one on any machine.
class Lane {
 public:
  // `disk`: for copies from there or to there.
  explicit Lane(Device device, std::optional<DiskCopies> disk = {}) : device_(device), disk_(std::move(disk)) {}
  ~Lane();  // waits for all copies
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  using Copy = TensorCopy;
  // Begins when all that compute.stream holds now has happened, and `after` too. Nothing happens in measure mode. All
  // of the copies concern the disk, or none; what goes there may still be on its way then, and is there for who reads
  // it.
  Moment copy(const Context& compute, std::span<const Copy> copies, const Moment& after = {});
  // Of all copies so far, begun or not.
  int64_t bytes() const noexcept { return bytes_; }

 private:
  int64_t bytes_ = 0;
  Device device_;
  std::optional<DiskCopies> disk_;
  std::optional<DeviceStream> stream_;
  std::optional<Worker> worker_;
};

}  // namespace tigon
