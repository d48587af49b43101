#pragma once

#include <optional>

#include "tigon/memory/ledger.hpp"
#include "tigon/train/disk_options.hpp"

namespace tigon {

inline constexpr int64_t kDiskPage = 4096;  // blocks are whole pages, so that no transfer has to read what it leaves

// The disk as a home: blocks of a file, whose addresses no memory has. A tensor there is one like any other, but that
// its bytes come and go through read and write alone.
class Disk final : public MemorySource {
 public:
  using Ticket = BlockFile::Ticket;

  // On paper: blocks are written into the ledger, and what would move is counted.
  explicit Disk(Ledger& planned) : planned_(&planned) {}
  // With a file of so many bytes; without one if there are none.
  Disk(const DiskOptions& options, int64_t bytes);

  Allocation take(std::string_view name, int64_t bytes, MemoryClass memory_class) override;
  void give_back(const Allocation& allocation) noexcept override;
  bool measuring() const noexcept override { return planned_ != nullptr; }

  // As BlockFile's. `home` lies in a block of this disk.
  Ticket read(const void* home, void* to, int64_t bytes) { return file_->read(offset_of(home), to, bytes); }
  Ticket write(void* home, const void* from, int64_t bytes) { return file_->write(offset_of(home), from, bytes); }
  void wait(Ticket ticket) { file_->wait(ticket); }

  // On paper: what a transfer of this tensor would move.
  void book_read(const Tensor& home) { booked_.read += align_up(home.bytes(), kDiskPage); }
  void book_write(const Tensor& home) { booked_.written += align_up(home.bytes(), kDiskPage); }

  int64_t used_bytes() const noexcept { return used_; }
  DiskTraffic traffic() const noexcept;
  // "in /data: 12.3 GiB, past the page cache, by io_uring"; empty without a file.
  std::string text() const;

 private:
  static int64_t offset_of(const void* home) noexcept;

  Ledger* planned_ = nullptr;
  int64_t used_ = 0;
  DiskTraffic booked_;
  std::filesystem::path folder_;
  std::optional<BlockFile> file_;
};

// Whether a tensor's bytes are on a disk.
bool on_disk(const Tensor& t) noexcept;

}  // namespace tigon
