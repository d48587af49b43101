#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include "tigon/core/scope.hpp"
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

// The scopes in which a thread waits; they begin with kWaitScope.
inline constexpr std::string_view kWaitForCopies = "wait for copies", kWaitForUpdates = "wait for updates",
                                  kWaitForDisk = "wait for the disk";

// Something that will have happened: a task of a host's thread, and what that task has queued on a GPU or with other
// threads. The one word by which those that compute, copy and update wait for each other.
class Moment {
 public:
  Moment() = default;  // has happened
  // `queued` is whole when the flag is raised.
  explicit Moment(std::shared_ptr<const Flag> flag, std::shared_ptr<const std::vector<Moment>> queued = nullptr)
      : flag_(std::move(flag)), queued_(std::move(queued)) {}
  Moment(Moment task, std::shared_ptr<const DeviceEvent> event)
      : flag_(std::move(task.flag_)), queued_(std::move(task.queued_)), event_(std::move(event)) {}
  // All that ctx.stream holds now.
  static Moment of(const Context& ctx) {
    if (ctx.device.kind == DeviceKind::cpu) return {};  // which has computed all that it was asked for
    auto event = std::make_shared<DeviceEvent>(ctx.device, false);
    event->record(ctx);
    return {Moment(), std::move(event)};
  }
  static Moment all(std::vector<Moment> moments) {
    return Moment(nullptr, std::make_shared<const std::vector<Moment>>(std::move(moments)));
  }

  // The same, of a copy from the disk or to it.
  Moment of_disk() && {
    disk_ = true;
    return std::move(*this);
  }

  // The thread that calls waits, and gets the error of a task that failed.
  void wait() const {
    wait_for_task();
    for (size_t i = 0; i < others(); ++i) (*queued_)[i].wait();
    if (event_) event_->synchronize();
  }
  // Throws if it is known by now that a task has failed; waits for nothing.
  void check() const {
    if (flag_ && !flag_->raised()) return;
    if (flag_ && flag_->failure()) std::rethrow_exception(flag_->failure());
    for (size_t i = 0; i < others(); ++i) (*queued_)[i].check();
  }
  // What is queued on ctx.stream from now on waits for the device's part of it; the caller waits for the host's.
  void hold(const Context& ctx) const { hold(ctx, disk_ ? kWaitForDisk : kWaitForCopies); }
  void hold(const Context& ctx, std::string_view scope) const {
    if (!flag_ && !queued_ && !event_) return;
    const Scope waits(ctx, scope);
    queue_wait(ctx);
  }

 private:
  void queue_wait(const Context& ctx) const {
    wait_for_task();
    for (size_t i = 0; i < others(); ++i) (*queued_)[i].queue_wait(ctx);
    if (event_) event_->wait(ctx);
  }
  void wait_for_task() const {
    if (!flag_) return;
    flag_->wait();
    if (flag_->failure()) std::rethrow_exception(flag_->failure());
  }
  size_t others() const { return queued_ ? queued_->size() : 0; }

  std::shared_ptr<const Flag> flag_;
  std::shared_ptr<const std::vector<Moment>> queued_;
  std::shared_ptr<const DeviceEvent> event_;
  bool disk_ = false;
};

}  // namespace tigon
