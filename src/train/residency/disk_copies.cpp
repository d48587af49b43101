#include "train/residency/disk_copies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tigon {

std::byte* ring_piece(const Buffer& ring, int64_t i) {
  const int64_t piece = (ring.bytes() - kDiskPage) / kDiskDepth;
  const auto begin = reinterpret_cast<uintptr_t>(ring.data());
  return ring.as<std::byte>() + -begin % static_cast<uintptr_t>(kDiskPage) + i * piece;
}

DiskCopies::DiskCopies(Disk& disk, Device device, const Buffer& ring, int64_t piece)
    : disk_(disk), device_(device), piece_(piece), slots_(static_cast<size_t>(kDiskDepth)) {
  for (int64_t i = 0; i < kDiskDepth; ++i) slots_[static_cast<size_t>(i)].data = ring_piece(ring, i);
}

DiskCopies::~DiskCopies() {
  for (Slot& slot : slots_) {
    try {
      free(slot);
    } catch (const std::exception&) {  // NOLINT: whoever needs the copy hears of it
    }
  }
}

void DiskCopies::book(std::span<const TensorCopy> copies) {
  for (const TensorCopy& c : copies) {
    if (on_disk(c.from)) disk_.book_read(c.from);
    if (on_disk(c.to)) disk_.book_write(c.to);
  }
}

std::vector<DiskCopies::Piece> DiskCopies::pieces_of(const Tensor& near, const Tensor& home) const {
  std::vector<Piece> pieces;
  const int64_t most = piece_ * size_of(home.dtype), bytes = home.bytes();
  for (int64_t offset = 0; offset < bytes; offset += most) {
    pieces.push_back({.near = near.as<std::byte>() + offset,
                      .home = home.as<std::byte>() + offset,
                      .bytes = std::min(most, bytes - offset)});
  }
  return pieces;
}

void DiskCopies::copy(const Context& lane, std::span<const TensorCopy> copies) {
  std::vector<Piece> pieces;
  const bool up = on_disk(copies.front().from);
  for (const TensorCopy& c : copies) {
    const std::vector<Piece> more = up ? pieces_of(c.to, c.from) : pieces_of(c.from, c.to);
    pieces.insert(pieces.end(), more.begin(), more.end());
  }
  up ? bring(lane, pieces) : send(lane, pieces);
}

void DiskCopies::bring(const Context& lane, const std::vector<Piece>& pieces) {
  size_t asked = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (; asked < pieces.size() && asked < i + slots_.size(); ++asked) {
      Slot& ahead = slot(next_ + asked);
      free(ahead);
      ahead.disk = disk_.read(pieces[asked].home, ahead.data, align_up(pieces[asked].bytes, kDiskPage));
    }
    Slot& here = slot(next_ + i);
    free(here);
    move(lane, here, pieces[i].near, here.data, pieces[i].bytes);
  }
  next_ += pieces.size();
}

void DiskCopies::send(const Context& lane, const std::vector<Piece>& pieces) {
  // The disk gets a piece when the device has been asked for the next.
  for (size_t i = 0; i <= pieces.size(); ++i) {
    if (i < pieces.size()) {
      Slot& here = slot(next_ + i);
      free(here);
      move(lane, here, here.data, pieces[i].near, pieces[i].bytes);
    }
    if (i == 0) continue;
    Slot& before = slot(next_ + i - 1);
    free(before);
    before.disk = disk_.write(pieces[i - 1].home, before.data, align_up(pieces[i - 1].bytes, kDiskPage));
  }
  next_ += pieces.size();
}

void DiskCopies::free(Slot& slot) {
  if (slot.disk) disk_.wait(*slot.disk);
  slot.disk.reset();
  if (std::exchange(slot.on_device, false)) slot.device->synchronize();
}

void DiskCopies::move(const Context& lane, Slot& slot, void* to, const void* from, int64_t bytes) const {
  if (device_.kind == DeviceKind::cpu) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  device_copy(lane, to, from, bytes);
  if (!slot.device) slot.device.emplace(device_, false);
  slot.device->record(lane);
  slot.on_device = true;
}

}  // namespace tigon
