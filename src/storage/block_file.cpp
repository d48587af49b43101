#include "tigon/storage/block_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "storage/block_sums.hpp"
#include "storage/checksum.hpp"
#include "storage/disk_queue.hpp"
#include "storage/unnamed_file.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

constexpr int64_t kPage = 4096;  // what transfers past the page cache are multiples of
constexpr int kMostBuffers = 4;

int64_t down(int64_t value, int64_t unit) { return value / unit * unit; }
int64_t up(int64_t value, int64_t unit) { return down(value + unit - 1, unit); }

uint64_t checksum_of(const char* data, int64_t bytes) {
  Checksum sum;
  sum.add(data, bytes);
  return sum.value();
}

struct Request {
  BlockFile::Ticket ticket = 0;
  bool write = false;
  int64_t offset = 0;
  char* data = nullptr;  // of a write, only read
  int64_t bytes = 0;
  int64_t started = 0;  // bytes of which a transfer has begun
  int active = 0;       // transfers under way

  bool all_started() const { return started == bytes; }
};

// A transfer under way, with the part of a request that it serves.
struct Slot {
  Request* request = nullptr;
  int64_t offset = 0, bytes = 0;
  char* data = nullptr;
  char* buffer = nullptr;   // where the transfer cannot go to `data` itself
  bool page_first = false;  // reads the page of which a write changes a part
  Transfer transfer{};      // what is left of it
  int64_t whole = 0;        // bytes of the transfer at its beginning
};

// Numbers alone, so that keeping them cannot fail; the text is made where it is thrown.
struct Failure {
  enum class Kind { system, cut, changed, no_memory } kind = Kind::system;
  bool write = false;
  int64_t offset = 0, bytes = 0, done = 0;
  int reason = 0;
  uint64_t expected = 0, got = 0;
};

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Pages = std::unique_ptr<char, Free>;

Pages take_pages(const std::string& where, int64_t bytes) {
  Pages pages(static_cast<char*>(std::aligned_alloc(kPage, static_cast<size_t>(bytes))));
  if (pages == nullptr) {
    throw Error(
        ErrorCode::out_of_memory,
        {.where = where, .what = "there is no memory for the buffers", .expected = fmt::format("{} bytes", bytes)});
  }
  return pages;
}

// Signals are for the program's own threads.
std::thread start_without_signals(const std::string& where, const std::function<void()>& run) {
  sigset_t all, before;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  int reason = 0;
  try {
    thread = std::thread(run);
  } catch (const std::system_error& error) {
    reason = error.code().value();
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (reason != 0) {
    throw Error(ErrorCode::out_of_memory,
                {.where = where, .what = fmt::format("the thread cannot be started: {}", std::strerror(reason))});
  }
  return thread;
}

}  // namespace

class BlockFile::Worker {
 public:
  Worker(const std::filesystem::path& folder, const std::string& name, int64_t bytes, const BlockFileOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Ticket add(bool write, int64_t offset, char* data, int64_t bytes);
  void wait(Ticket ticket);

  int64_t bytes() const noexcept { return bytes_; }
  int64_t moved(bool write) const noexcept {
    const std::lock_guard lock(mutex_);
    return moved_[write ? 1 : 0];
  }
  bool direct() const noexcept { return unit_ > 1; }
  bool ring() const noexcept { return ring_; }

 private:
  void open_queue();
  int try_queue();
  void run();
  Request* next_to_start() noexcept;
  bool start_piece(Request& request);
  int64_t piece_bytes(const Request& request) const;
  void finish_piece();
  void moved_all(Slot& slot);
  void give_back(Slot& slot);
  void retire() noexcept;
  void fail(const Failure& failure) noexcept;
  [[noreturn]] void throw_error(const Failure& f) const;

  const std::string where_;
  const int64_t bytes_;
  const BlockFileOptions options_;
  UnnamedFile file_;
  Pages pages_;  // the buffers, in one piece
  int64_t unit_ = 1;
  bool ring_ = false;
  std::shared_ptr<DiskQueue> queue_;

  // The thread's own.
  BlockSums sums_;
  std::vector<Slot> slots_;
  std::vector<int> idle_slots_;
  std::vector<char*> idle_buffers_;

  mutable std::mutex mutex_;  // of what follows, and of `active` and `started` in a request
  std::condition_variable changed_;
  std::list<Request> requests_, failed_;  // in the order of their tickets
  Ticket next_ticket_ = 0;
  std::optional<Failure> failure_;
  int64_t moved_[2] = {};
  bool stop_ = false;

  std::thread thread_;  // last, so that it sees all the others whole
};

BlockFile::Worker::Worker(const std::filesystem::path& folder, const std::string& name, int64_t bytes,
                          const BlockFileOptions& options)
    : where_(fmt::format("{} in {}", name, folder.string())),
      bytes_(bytes),
      options_(options),
      file_(folder, where_, up(bytes, kPage)) {
  open_queue();
  slots_.resize(static_cast<size_t>(options.depth));
  for (int i = options.depth - 1; i >= 0; --i) idle_slots_.push_back(i);
  if (options.through) queue_ = options.through(std::move(queue_));
  thread_ = start_without_signals(where_, [this] { run(); });
}

BlockFile::Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// What the options allow and this machine can do is found by trying it: one page, before there is anything in the file.
void BlockFile::Worker::open_queue() {
  int reason = 0;
  for (const bool direct : {true, false}) {
    if ((direct && !options_.direct) || !file_.set_direct(direct)) continue;
    unit_ = direct ? kPage : 1;
    const int buffers = direct ? std::min(options_.depth, kMostBuffers) : 0;
    if (direct)
      pages_ = take_pages(where_, buffers * options_.piece_bytes);
    else
      pages_.reset();
    idle_buffers_.clear();
    for (int i = 0; i < buffers; ++i) idle_buffers_.push_back(pages_.get() + i * options_.piece_bytes);
    for (const bool ring : {true, false}) {
      if (ring && !options_.ring) continue;
      ring_ = ring;
      queue_ = ring ? make_ring_queue(file_.handle(), options_.depth, pages_.get(), buffers * options_.piece_bytes)
                    : make_plain_queue(file_.handle(), options_.depth);
      if (queue_ == nullptr) continue;
      reason = try_queue();
      if (reason == 0) return;
    }
  }
  throw Error(ErrorCode::io, {.where = where_,
                              .what = fmt::format("the first page cannot be written: {}", std::strerror(reason)),
                              .fix = "Choose a folder on another disk."});
}

// 0, or why a page cannot be written.
int BlockFile::Worker::try_queue() {
  const Pages page = take_pages(where_, kPage);
  std::memset(page.get(), 0, kPage);
  queue_->start({.write = true, .offset = 0, .data = page.get(), .bytes = kPage});
  const int64_t result = queue_->finish().result;
  return result == kPage ? 0 : result < 0 ? static_cast<int>(-result) : EIO;
}

BlockFile::Ticket BlockFile::Worker::add(bool write, int64_t offset, char* data, int64_t bytes) {
  if (offset < 0 || bytes < 0 || offset > bytes_ - bytes || (data == nullptr && bytes > 0)) {
    throw Error(ErrorCode::invalid_argument, {.where = where_,
                                              .what = "memory is missing, or the bytes lie outside the file",
                                              .expected = fmt::format("at most {} bytes", bytes_),
                                              .got = fmt::format("{} bytes at {}", bytes, offset)});
  }
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw_error(*failure_);
    ticket = next_ticket_;
    if (bytes > 0) {
      requests_.push_back({.ticket = ticket, .write = write, .offset = offset, .data = data, .bytes = bytes});
    }
    ++next_ticket_;
  }
  changed_.notify_all();
  return ticket;
}

void BlockFile::Worker::wait(Ticket ticket) {
  const auto is_in = [&](const std::list<Request>& list) {
    return std::any_of(list.begin(), list.end(), [&](const Request& request) { return request.ticket == ticket; });
  };
  std::unique_lock lock(mutex_);
  if (ticket < 0 || ticket >= next_ticket_) {
    throw Error(ErrorCode::invalid_argument, {.where = where_,
                                              .what = "this ticket was never given out",
                                              .expected = fmt::format("0 to {}", next_ticket_ - 1),
                                              .got = std::to_string(ticket)});
  }
  changed_.wait(lock, [&] { return !is_in(requests_); });
  if (failure_ && is_in(failed_)) throw_error(*failure_);
}

void BlockFile::Worker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Request* next = next_to_start();
    const bool busy = idle_slots_.size() < slots_.size();
    if (next == nullptr && !busy) {
      retire();
      if (stop_) return;
      if (requests_.empty()) changed_.wait(lock, [&] { return stop_ || !requests_.empty(); });
      continue;
    }
    lock.unlock();
    if (next == nullptr || !start_piece(*next)) finish_piece();
    lock.lock();
    retire();
  }
}

// The first request that has not all begun, unless one before it has to end first.
Request* BlockFile::Worker::next_to_start() noexcept {
  if (stop_ || failure_) return nullptr;
  const auto next = std::find_if(requests_.begin(), requests_.end(), [](const Request& r) { return !r.all_started(); });
  if (next == requests_.end()) return nullptr;
  // A write of part of a page changes all of it.
  const int64_t begin = down(next->offset, unit_), end = up(next->offset + next->bytes, unit_);
  const bool waits =
      next->started == 0 && std::any_of(requests_.begin(), next, [&](const Request& before) {
        return (before.write || next->write) && before.offset < end && begin < before.offset + before.bytes;
      });
  return waits ? nullptr : &*next;
}

// Of the request's next transfer: whole pages, or what lies in one.
int64_t BlockFile::Worker::piece_bytes(const Request& request) const {
  const int64_t offset = request.offset + request.started;
  int64_t bytes = request.bytes - request.started;
  if (!request.write) bytes = sums_.until_block_ends(offset, bytes);
  if (offset % unit_ != 0) return std::min(bytes, unit_ - offset % unit_);
  return bytes < unit_ ? bytes : std::min(down(bytes, unit_), options_.piece_bytes);
}

// False where another transfer has to end first.
bool BlockFile::Worker::start_piece(Request& request) {
  const int64_t offset = request.offset + request.started, bytes = piece_bytes(request);
  char* const data = request.data + request.started;
  const bool whole_pages = offset % unit_ == 0 && bytes % unit_ == 0;
  const bool buffered = !whole_pages || reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(unit_) != 0;
  if (idle_slots_.empty() || (buffered && idle_buffers_.empty())) return false;

  if (request.write && options_.verify) {
    try {
      sums_.wrote(offset, bytes, checksum_of(data, bytes));
    } catch (const std::bad_alloc&) {
      fail({.kind = Failure::Kind::no_memory, .write = true, .offset = offset, .bytes = bytes});
      return true;
    }
  }
  const int tag = idle_slots_.back();
  idle_slots_.pop_back();
  Slot& slot = slots_[static_cast<size_t>(tag)];
  slot = {.request = &request, .offset = offset, .bytes = bytes, .data = data};
  if (buffered) {
    slot.buffer = idle_buffers_.back();
    idle_buffers_.pop_back();
    slot.page_first = request.write && !whole_pages;
    if (request.write && whole_pages) std::memcpy(slot.buffer, data, static_cast<size_t>(bytes));
  }
  slot.transfer = {.write = request.write && !slot.page_first,
                   .offset = down(offset, unit_),
                   .data = buffered ? slot.buffer : data,
                   .bytes = up(bytes, unit_),
                   .tag = tag};
  slot.whole = slot.transfer.bytes;
  {
    const std::lock_guard lock(mutex_);
    request.started += bytes;
    ++request.active;
  }
  queue_->start(slot.transfer);
  return true;
}

void BlockFile::Worker::finish_piece() {
  const auto [tag, result] = queue_->finish();
  Slot& slot = slots_[static_cast<size_t>(tag)];
  Transfer& left = slot.transfer;
  if (result > 0) {
    left.offset += result;
    left.data += result;
    left.bytes -= result;
    const std::lock_guard lock(mutex_);
    moved_[left.write ? 1 : 0] += result;
  }
  if (left.bytes == 0) return moved_all(slot);
  // Fewer bytes than asked for are no fault as long as some came and the rest can be asked for.
  if (result == -EINTR || (result > 0 && left.offset % unit_ == 0)) return queue_->start(left);
  fail({.kind = result < 0 ? Failure::Kind::system : Failure::Kind::cut,
        .write = left.write,
        .offset = left.offset + left.bytes - slot.whole,
        .bytes = slot.whole,
        .done = slot.whole - left.bytes,
        .reason = result < 0 ? static_cast<int>(-result) : 0});
  give_back(slot);
}

void BlockFile::Worker::moved_all(Slot& slot) {
  const auto bytes = static_cast<size_t>(slot.bytes);
  if (slot.page_first) {
    std::memcpy(slot.buffer + slot.offset % unit_, slot.data, bytes);
    slot.page_first = false;
    slot.transfer = {.write = true,
                     .offset = down(slot.offset, unit_),
                     .data = slot.buffer,
                     .bytes = slot.whole,
                     .tag = slot.transfer.tag};
    return queue_->start(slot.transfer);
  }
  if (!slot.transfer.write) {
    if (slot.buffer != nullptr) std::memcpy(slot.data, slot.buffer + slot.offset % unit_, bytes);
    BlockSums::Block* block = sums_.find(slot.offset, slot.bytes);
    if (block != nullptr && !block->seen) {
      const uint64_t got = checksum_of(slot.data, slot.bytes);
      block->seen = got == block->sum;
      if (!block->seen) {
        fail({.kind = Failure::Kind::changed,
              .offset = slot.offset,
              .bytes = slot.bytes,
              .expected = block->sum,
              .got = got});
      }
    }
  }
  give_back(slot);
}

void BlockFile::Worker::give_back(Slot& slot) {
  idle_slots_.push_back(slot.transfer.tag);
  if (slot.buffer != nullptr) idle_buffers_.push_back(slot.buffer);
  const std::lock_guard lock(mutex_);
  --slot.request->active;
}

// Lets go of the requests that are done, or that nothing will be done for any more.
void BlockFile::Worker::retire() noexcept {
  const bool dropped = stop_ || failure_;
  bool some = false;
  for (auto at = requests_.begin(); at != requests_.end() && (dropped || at->started > 0);) {
    const auto next = std::next(at);
    if (at->active == 0 && (dropped || at->all_started())) {
      some = true;
      // A file that failed is not asked which of the others were whole.
      if (dropped)
        failed_.splice(failed_.end(), requests_, at);
      else
        requests_.erase(at);
    }
    at = next;
  }
  if (some) changed_.notify_all();
}

void BlockFile::Worker::fail(const Failure& failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
}

void BlockFile::Worker::throw_error(const Failure& f) const {
  const char* verb = f.write ? "written" : "read";
  Error::Parts parts = {.where = fmt::format("{}, {} bytes at offset {}", where_, f.bytes, f.offset), .what = {}};
  switch (f.kind) {
    case Failure::Kind::no_memory:
      throw Error(ErrorCode::out_of_memory, {.where = parts.where, .what = "there is no memory to keep its checksum"});
    case Failure::Kind::system:
      parts.what = fmt::format("cannot be {}: {}", verb, std::strerror(f.reason));
      parts.expected = fmt::format("{} bytes {}", f.bytes, verb);
      parts.got = std::to_string(f.done);
      parts.fix =
          f.reason == ENOSPC || f.reason == EDQUOT
              ? "Free space on this disk or choose a folder on another, and resume from the last checkpoint."
              : "Look for the disk's own messages (dmesg), choose a folder on another disk, and resume from the "
                "last checkpoint.";
      break;
    case Failure::Kind::cut:
      parts.what = fmt::format("cannot be {}: the file ends there; something cut it", verb);
      parts.expected = fmt::format("{} bytes {}", f.bytes, verb);
      parts.got = std::to_string(f.done);
      parts.fix = "Find what else works on this disk, and resume from the last checkpoint.";
      break;
    case Failure::Kind::changed:
      parts.what = "what is read is not what was written";
      parts.expected = fmt::format("checksum {:016x}", f.expected);
      parts.got = fmt::format("{:016x}", f.got);
      parts.fix =
          "Test disk and memory of this machine, or choose a folder on another disk, and resume from the last "
          "checkpoint.";
      break;
  }
  throw Error(ErrorCode::io, parts);
}

BlockFile::BlockFile(const std::filesystem::path& folder, const std::string& name, int64_t bytes,
                     const BlockFileOptions& options) {
  constexpr int64_t kLargestPiece = int64_t{1} << 30;
  constexpr int kMostAtOnce = 1024;
  constexpr int64_t kLargestFile = int64_t{1} << 60;
  if (bytes < 1 || bytes > kLargestFile || options.piece_bytes < kPage || options.piece_bytes > kLargestPiece ||
      options.piece_bytes % kPage != 0 || options.depth < 1 || options.depth > kMostAtOnce) {
    throw Error(ErrorCode::invalid_argument,
                {.where = fmt::format("{} in {}", name, folder.string()),
                 .what = "such a file cannot be made",
                 .expected = fmt::format("1 to {} bytes, pieces of a multiple of {} to {}, a depth of 1 to {}",
                                         kLargestFile, kPage, kLargestPiece, kMostAtOnce),
                 .got = fmt::format("{} bytes, {}, {}", bytes, options.piece_bytes, options.depth)});
  }
  worker_ = std::make_unique<Worker>(folder, name, bytes, options);
}

BlockFile::~BlockFile() = default;

BlockFile::Ticket BlockFile::write(int64_t offset, const void* from, int64_t bytes) {
  // A request has one pointer for both ways; that of a write is only read.
  return worker_->add(true, offset, const_cast<char*>(static_cast<const char*>(from)), bytes);
}

BlockFile::Ticket BlockFile::read(int64_t offset, void* to, int64_t bytes) {
  return worker_->add(false, offset, static_cast<char*>(to), bytes);
}

void BlockFile::wait(Ticket ticket) { worker_->wait(ticket); }
int64_t BlockFile::bytes() const noexcept { return worker_->bytes(); }
int64_t BlockFile::bytes_written() const noexcept { return worker_->moved(true); }
int64_t BlockFile::bytes_read() const noexcept { return worker_->moved(false); }
bool BlockFile::direct() const noexcept { return worker_->direct(); }
bool BlockFile::ring() const noexcept { return worker_->ring(); }

}  // namespace tigon
