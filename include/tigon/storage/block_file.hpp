#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace tigon {

class DiskQueue;

struct BlockFileOptions {
  bool direct = true;  // past the page cache, where the file system can
  bool ring = true;    // by io_uring, where kernel and build have it; otherwise by pread and pwrite, one at a time
  bool verify = true;  // compare what is first read of a block with what was written
  int64_t piece_bytes = int64_t{2} << 20;  // of one transfer: a multiple of 4096
  int depth = 16;                          // transfers under way at once
  // Tests put their faults between the file and the disk here (src/storage/disk_queue.hpp).
  std::function<std::shared_ptr<DiskQueue>(std::shared_ptr<DiskQueue>)> through{};
};

// A home on the disk for blocks that memory has no room for, as long as the object lives. The file has no name in its
// folder, so nothing is left there however the process ends, and nobody else can open it.
//
// Requests are carried out behind the caller's back, on a thread of the file's own, in the order in which they were
// made; those that do not overlap may overtake each other. The caller's memory must stay, and unchanged for a write,
// until the request was waited for. Fastest where offset, address and bytes are multiples of 4096; others go through a
// few buffers of piece_bytes and may read the pages at their ends first.
//
// A read that covers all of what one write put down compares checksums; one that covers parts of it does not, nor one
// of what was partly overwritten.
//
// After the first error the file is of no use: what is under way ends, and every call but those for requests that had
// succeeded gives that error. Any thread may call any function, except the destructor, at any time.
class BlockFile {
 public:
  using Ticket = int64_t;

  // Reserves all of `bytes`, or says how many there are. `name` is for messages: "optimizer states".
  BlockFile(const std::filesystem::path& folder, const std::string& name, int64_t bytes,
            const BlockFileOptions& options = {});
  // Drops what has not begun, waits for what has, and gives the room back.
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  Ticket write(int64_t offset, const void* from, int64_t bytes);
  // What was never written reads as anything.
  Ticket read(int64_t offset, void* to, int64_t bytes);
  // Returns when the request is done. Error where it failed: the disk's own, a file that was cut, a wrong checksum.
  void wait(Ticket ticket);

  int64_t bytes() const noexcept;
  // By the disk, so far: whole pages, and those that a write had to read first.
  int64_t bytes_written() const noexcept;
  int64_t bytes_read() const noexcept;
  // What is in use of what the options allow.
  bool direct() const noexcept;
  bool ring() const noexcept;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace tigon
