#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "storage/disk_queue.hpp"
#include "tigon/storage/block_file.hpp"

namespace tigon::test {

// A queue whose transfers end as a rule says: none lets the disk decide, a positive number is how many bytes it gets to
// move, any other is the result.
class FaultyQueue : public DiskQueue {
 public:
  using Rule = std::function<std::optional<int64_t>(const Transfer&)>;

  FaultyQueue(std::shared_ptr<DiskQueue> real, Rule rule) : real_(std::move(real)), rule_(std::move(rule)) {}
  ~FaultyQueue() override { EXPECT_EQ(under_way_, 0); }

  void start(const Transfer& transfer) noexcept override {
    ++under_way_;
    Transfer less = transfer;
    if (const std::optional<int64_t> result = rule_(transfer)) {
      if (*result <= 0) return made_up_.push_back({.tag = transfer.tag, .result = *result});
      less.bytes = *result;
    }
    real_->start(less);
  }

  Transferred finish() noexcept override {
    --under_way_;
    if (made_up_.empty()) return real_->finish();
    const Transferred last = made_up_.back();
    made_up_.pop_back();
    return last;
  }

 private:
  std::shared_ptr<DiskQueue> real_;
  Rule rule_;
  std::vector<Transferred> made_up_;
  int under_way_ = 0;
};

inline BlockFileOptions with(BlockFileOptions options, const FaultyQueue::Rule& rule) {
  options.through = [rule](std::shared_ptr<DiskQueue> real) {
    return std::make_shared<FaultyQueue>(std::move(real), rule);
  };
  return options;
}

}  // namespace tigon::test
