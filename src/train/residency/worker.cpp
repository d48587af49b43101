#include "train/residency/worker.hpp"

#include <system_error>

#include "tigon/core/error.hpp"

namespace tigon {

Worker::Worker() try : thread_([this] { run(); }) {
} catch (const std::system_error& error) {
  throw Error(ErrorCode::out_of_memory,
              {.where = "--offload",
               .what = std::string("a thread beside the step cannot be started: ") + error.code().message(),
               .fix = "Raise the limit of processes (ulimit -u, or the container's), or end others."});
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  more_.notify_one();
  thread_.join();
}

Moment Worker::add(std::function<void()> task) {
  auto done = std::make_shared<Flag>();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(task), done});
  }
  more_.notify_one();
  return Moment(std::shared_ptr<const Flag>(std::move(done)));
}

void Worker::run() {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    std::exception_ptr failure;
    try {
      task.work();
    } catch (...) {
      failure = std::current_exception();
    }
    task.work = nullptr;  // what it holds goes before anybody hears of it
    task.done->raise(std::move(failure));
  }
}

}  // namespace tigon
