#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "train/residency/disk_copies.hpp"
#include "train/residency/worker.hpp"

namespace tigon {

// Copies in one direction, in order, beside what computes. A thread carries them out, on a GPU by a stream of its own.
// It starts nothing before the first copy, so that a planner may have one on any machine.
class Lane {
 public:
  // `name`: of the scope around each copy. `disk`: for copies from there or to there.
  explicit Lane(Device device, const char* name = "copy", std::optional<DiskCopies> disk = {})
      : device_(device), name_(name), disk_(std::move(disk)) {}
  ~Lane();  // waits for all copies
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  using Copy = TensorCopy;
  // Begins when all that compute.stream holds now has happened, and `after` too. In measure mode bytes are counted
  // alone. All of the copies concern the disk, or none; what goes there may still be on its way then, and is there for
  // who reads it.
  Moment copy(const Context& compute, std::span<const Copy> copies, const Moment& after = {});
  // Begins when `after` has happened, whatever is being computed. `watch`: who watches this lane's thread.
  Moment copy(std::span<const Copy> copies, const Moment& after, Observer* watch);
  // Of all copies so far, begun or not.
  int64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  static bool concerns_disk(std::span<const Copy> copies);
  void count(std::span<const Copy> copies);
  Moment add(std::span<const Copy> copies, const Moment& after, Observer* watch);

  std::atomic<int64_t> bytes_ = 0;  // read while another thread copies
  Device device_;
  const char* name_;
  std::optional<DiskCopies> disk_;
  std::optional<DeviceStream> stream_;
  std::optional<Worker> worker_;
};

}  // namespace tigon
