// Transfers between memory and a file, several under way at once. Knows nothing of blocks, pages or errors: a result is
// what the kernel said.
#pragma once

#include <cstdint>
#include <memory>

namespace tigon {

struct Transfer {
  bool write = false;
  int64_t offset = 0;
  char* data = nullptr;
  int64_t bytes = 0;
  int tag = 0;  // given back with the result
};

struct Transferred {
  int tag = 0;
  int64_t result = 0;  // bytes, perhaps fewer than asked for, or −errno
};

// One thread uses it. Nothing here throws or allocates after construction.
class DiskQueue {
 public:
  virtual ~DiskQueue() = default;
  // There are fewer than `depth` under way.
  virtual void start(const Transfer& transfer) noexcept = 0;
  // Waits for one of those under way; there is one.
  virtual Transferred finish() noexcept = 0;
};

// By pread and pwrite, each when it is finished.
std::shared_ptr<DiskQueue> make_plain_queue(int file, int depth);

// By io_uring. Null where the kernel has none, forbids it, or the build had no liburing. Transfers from and to
// `buffers` are faster: the kernel keeps them at hand.
std::shared_ptr<DiskQueue> make_ring_queue(int file, int depth, void* buffers, int64_t buffer_bytes);

}  // namespace tigon
