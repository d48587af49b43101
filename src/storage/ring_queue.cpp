#include "storage/disk_queue.hpp"

#ifdef TIGON_WITH_URING

#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

namespace tigon {

namespace {

class RingQueue : public DiskQueue {
 public:
  RingQueue(int file, int depth, void* buffers, int64_t buffer_bytes)
      : file_(file), buffers_(static_cast<char*>(buffers)), buffer_bytes_(buffer_bytes) {
    refused_.reserve(static_cast<size_t>(depth));
    good_ = io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0) == 0;
    if (!good_ || buffers == nullptr) return;
    const iovec all = {.iov_base = buffers, .iov_len = static_cast<size_t>(buffer_bytes)};
    // Refused where they are more than the user may lock; then they are memory like any other.
    if (io_uring_register_buffers(&ring_, &all, 1) != 0) buffer_bytes_ = 0;
  }
  ~RingQueue() override {
    if (good_) io_uring_queue_exit(&ring_);
  }
  RingQueue(const RingQueue&) = delete;
  RingQueue& operator=(const RingQueue&) = delete;

  bool good() const noexcept { return good_; }

  void start(const Transfer& t) noexcept override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return refused_.push_back({.tag = t.tag, .result = -EBUSY});
    const bool known = buffer_bytes_ > 0 && t.data >= buffers_ && t.data < buffers_ + buffer_bytes_;
    const auto bytes = static_cast<unsigned>(t.bytes);
    const auto offset = static_cast<uint64_t>(t.offset);
    if (t.write && known) io_uring_prep_write_fixed(entry, file_, t.data, bytes, offset, 0);
    if (t.write && !known) io_uring_prep_write(entry, file_, t.data, bytes, offset);
    if (!t.write && known) io_uring_prep_read_fixed(entry, file_, t.data, bytes, offset, 0);
    if (!t.write && !known) io_uring_prep_read(entry, file_, t.data, bytes, offset);
    entry->user_data = static_cast<uint64_t>(t.tag);
    const int reason = submit();
    if (reason == 0) return;
    // The kernel has not taken the entry and would with the next one, when the memory may be gone.
    io_uring_prep_nop(entry);
    entry->user_data = kNobody;
    refused_.push_back({.tag = t.tag, .result = reason});
  }

  Transferred finish() noexcept override {
    if (!refused_.empty()) {
      const Transferred last = refused_.back();
      refused_.pop_back();
      return last;
    }
    for (;;) {
      io_uring_cqe* entry = nullptr;
      const int reason = io_uring_wait_cqe(&ring_, &entry);
      // As long as the kernel may write to memory, there is nothing but to wait.
      if (reason != 0 && reason != -EINTR) pause();
      if (reason != 0) continue;
      const uint64_t who = entry->user_data;
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      if (who != kNobody) return {.tag = static_cast<int>(who), .result = result};
    }
  }

 private:
  static constexpr uint64_t kNobody = ~uint64_t{0};

  static void pause() noexcept { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

  // 0, or why the kernel does not take the entry.
  int submit() noexcept {
    constexpr int kMostTries = 1000;  // a second: memory that the kernel lacks comes back
    int reason = 0;
    for (int i = 0; i < kMostTries; ++i) {
      reason = io_uring_submit(&ring_);
      if (reason >= 0) return 0;
      if (reason == -EINTR) continue;
      if (reason != -EAGAIN && reason != -EBUSY) break;
      pause();
    }
    return reason;
  }

  int file_;
  char* buffers_;
  int64_t buffer_bytes_;
  bool good_ = false;
  io_uring ring_{};
  std::vector<Transferred> refused_;
};

}  // namespace

std::shared_ptr<DiskQueue> make_ring_queue(int file, int depth, void* buffers, int64_t buffer_bytes) {
  auto queue = std::make_shared<RingQueue>(file, depth, buffers, buffer_bytes);
  return queue->good() ? queue : nullptr;
}

}  // namespace tigon

#else

namespace tigon {

std::shared_ptr<DiskQueue> make_ring_queue(int, int, void*, int64_t) { return nullptr; }

}  // namespace tigon

#endif
