#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tigon/ops/device_memory.hpp"
#include "train/residency/disk.hpp"

namespace tigon {

inline constexpr int64_t kDiskDepth = 4;  // pieces that are on their way at once

// Memory for so many pieces, each beginning with a page.
constexpr int64_t disk_ring_bytes(int64_t piece_bytes) {
  return kDiskDepth * align_up(piece_bytes, kDiskPage) + kDiskPage;
}
// Piece `i` of such memory.
std::byte* ring_piece(const Buffer& ring, int64_t i);

struct TensorCopy {
  Tensor to;
  Tensor from;
};

// Copies between the device and the disk through a ring of pinned memory. No more is ever on its way than the ring
// holds: whoever copies more waits for the disk. One thread copies.
class DiskCopies {
 public:
  DiskCopies(Disk& disk, Device device, const Buffer& ring, int64_t piece);
  DiskCopies(DiskCopies&&) noexcept = default;
  DiskCopies& operator=(DiskCopies&&) = delete;
  ~DiskCopies();  // waits until nobody uses the ring

  // In order, all of them in one direction. `lane` carries the device's part, which may still be under way when this
  // returns; the disk's may too, and what is read of it later comes after it.
  void copy(const Context& lane, std::span<const TensorCopy> copies);
  // What that would move.
  void book(std::span<const TensorCopy> copies);

 private:
  // A piece of the ring, and who uses it: the disk, or the device.
  struct Slot {
    std::byte* data = nullptr;
    std::optional<Disk::Ticket> disk;
    std::optional<DeviceEvent> device;
    bool on_device = false;
  };
  struct Piece {
    std::byte* near = nullptr;
    std::byte* home = nullptr;
    int64_t bytes = 0;
  };
  std::vector<Piece> pieces_of(const Tensor& near, const Tensor& home) const;
  void bring(const Context& lane, const std::vector<Piece>& pieces);
  void send(const Context& lane, const std::vector<Piece>& pieces);
  Slot& slot(size_t index) { return slots_[index % slots_.size()]; }
  // Waits for whoever uses it.
  void free(Slot& slot);
  void move(const Context& lane, Slot& slot, void* to, const void* from, int64_t bytes) const;

  Disk& disk_;
  Device device_;
  int64_t piece_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
};

}  // namespace tigon
