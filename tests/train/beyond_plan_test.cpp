// What a run holds beyond its plan.
#include <gtest/gtest.h>

#include "tigon/train/run.hpp"
#include "train/heap_watch.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

// The most that C++ code had on the heap during a run. On a CPU that is all beyond the plan, but for what libraries
// take.
int64_t heap_of_run(int64_t accumulate) {
  TrainConfig train = small_run();
  train.batch = 4;
  train.seq = 32;
  train.steps = 3;
  train.accumulate = accumulate;
  RunObserver observer;
  const std::atomic<bool> stop{false};
  watch_heap();
  const int64_t before = heap_bytes();
  EXPECT_EQ(run_training(small_model(), train, {}, observer, stop).trained, 3);
  return heap_peak() - before;
}

TEST(BeyondThePlan, ARunHoldsLittleHoweverManyMicroBatchesItHas) {
  (void)heap_of_run(1);  // what is made once
  const int64_t few = heap_of_run(2), many = heap_of_run(512);
  EXPECT_LT(few, 128 << 10);
  // Of each micro-batch its loss is read, 4 bytes.
  EXPECT_LT(many - few, 512 * 4 + 1024);
}

}  // namespace
}  // namespace tigon::test
