#include <unistd.h>

#include <cerrno>
#include <vector>

#include "storage/disk_queue.hpp"

namespace tigon {

namespace {

class PlainQueue : public DiskQueue {
 public:
  PlainQueue(int file, int depth) : file_(file) { waiting_.reserve(static_cast<size_t>(depth)); }

  void start(const Transfer& transfer) noexcept override { waiting_.push_back(transfer); }

  Transferred finish() noexcept override {
    const Transfer t = waiting_.front();
    waiting_.erase(waiting_.begin());
    const auto bytes = static_cast<size_t>(t.bytes);
    const ssize_t n = t.write ? ::pwrite(file_, t.data, bytes, t.offset) : ::pread(file_, t.data, bytes, t.offset);
    return {.tag = t.tag, .result = n < 0 ? -errno : n};
  }

 private:
  int file_;
  std::vector<Transfer> waiting_;
};

}  // namespace

std::shared_ptr<DiskQueue> make_plain_queue(int file, int depth) { return std::make_shared<PlainQueue>(file, depth); }

}  // namespace tigon
