#pragma once

#include <atomic>
#include <exception>
#include <memory>

#include "tigon/ops/device_memory.hpp"

namespace tigon {

// Raised once, by a thread of the host, when its task is done or has failed.
class Flag {
 public:
  void raise(std::exception_ptr failure = nullptr) noexcept {
    failure_ = std::move(failure);
    raised_.store(true, std::memory_order_release);
    raised_.notify_all();
  }
  void wait() const noexcept { raised_.wait(false, std::memory_order_acquire); }
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  // After wait().
  const std::exception_ptr& failure() const noexcept { return failure_; }

 private:
  std::atomic<bool> raised_ = false;
  std::exception_ptr failure_;
};

// Something that will have happened: a task of a host's thread, and on a GPU what that task has queued. The one word by
// which those that compute, copy and update wait for each other.
class Moment {
 public:
  Moment() = default;  // has happened
  explicit Moment(std::shared_ptr<const Flag> flag) : flag_(std::move(flag)) {}
  Moment(Moment queued, std::shared_ptr<const DeviceEvent> event)
      : flag_(std::move(queued.flag_)), event_(std::move(event)) {}

  // The thread that calls waits, and gets the error of a task that failed.
  void wait() const {
    wait_for_task();
    if (event_) event_->synchronize();
  }
  // Throws if it is known by now that a task has failed; waits for nothing.
  void check() const {
    if (flag_ && flag_->raised() && flag_->failure()) std::rethrow_exception(flag_->failure());
  }
  // What is queued on ctx.stream from now on waits for the device's part of it; the caller waits for the host's.
  void hold(const Context& ctx) const {
    wait_for_task();
    if (event_) event_->wait(ctx);
  }

 private:
  void wait_for_task() const {
    if (!flag_) return;
    flag_->wait();
    check();
  }

  std::shared_ptr<const Flag> flag_;
  std::shared_ptr<const DeviceEvent> event_;
};

}  // namespace tigon
