#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "train/residency/moment.hpp"

namespace tigon {

// A thread of the host that runs one task after the other. Its end waits for all of them.
class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Moment add(std::function<void()> task);

 private:
  struct Task {
    std::function<void()> work;
    std::shared_ptr<Flag> done;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Task> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tigon
