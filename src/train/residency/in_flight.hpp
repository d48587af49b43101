#pragma once

#include <utility>
#include <vector>

#include "train/residency/moment.hpp"

namespace tigon {

// Memory that a copy still reads or writes. It goes back when whoever computes has joined the copy; where an error
// comes first, the host waits for it.
class InFlight {
 public:
  InFlight() = default;
  InFlight(std::vector<OwnedTensor> tensors, Moment done) : tensors_(std::move(tensors)), done_(std::move(done)) {}
  InFlight(InFlight&&) noexcept = default;
  InFlight& operator=(InFlight&& other) noexcept {
    wait_quietly();
    tensors_ = std::move(other.tensors_);
    done_ = std::exchange(other.done_, {});
    return *this;
  }
  ~InFlight() { wait_quietly(); }

  // What ctx.stream gets from now on comes after the copy. The tensors are the caller's now.
  std::vector<OwnedTensor> join(const Context& ctx) {
    done_.hold(ctx);
    done_ = {};
    return std::move(tensors_);
  }

 private:
  void wait_quietly() noexcept {
    if (tensors_.empty()) return;
    try {
      done_.wait();
    } catch (const std::exception&) {  // NOLINT: whoever needs the copy hears of it
    }
  }

  std::vector<OwnedTensor> tensors_;
  Moment done_;
};

}  // namespace tigon
