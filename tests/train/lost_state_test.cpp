// Disks that fail and processes that are killed, at every point where they can: no state is mixed, and none is lost.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/expect_error.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/train/checkpoints.hpp"
#include "tigon/train/trainer.hpp"
#include "train/small_model.hpp"
#include "train/system_calls.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;
const std::map<std::string, std::string> kSettings = {{"seed", "1"}};

StepReport one_step(Trainer& trainer, int64_t step) {
  trainer.submit(small_batch(trainer.model(), trainer.config(), step));
  return trainer.collect();
}

std::string weights_of(const Trainer& trainer) {
  const TemporaryFolder folder;
  trainer.save_weights(folder / "now");
  return read_text_file(folder / "now" / "model.safetensors", 1 << 26);
}

// Each read of `load` fails once. The trainer then has what it had before, or nothing at all; and it may begin again.
void expect_whole_or_none(Trainer& trainer, const std::function<void()>& load) {
  trainer.initialize();
  const std::string before = weights_of(trainer);
  int kept = 0, none = 0;
  for (int64_t n = 1;; ++n) {
    ASSERT_LT(n, 10000);
    fail_read(n);
    bool thrown = false;
    try {
      load();
    } catch (const Error&) {
      thrown = true;
    }
    const bool failed = read_failed();
    fail_read(0);
    if (!failed) {
      EXPECT_FALSE(thrown);
      break;
    }
    ASSERT_TRUE(thrown) << "read " << n;
    try {
      EXPECT_TRUE(weights_of(trainer) == before) << "read " << n;
      ++kept;
    } catch (const Error&) {
      ++none;
      expect_error([&] { (void)one_step(trainer, 0); }, ErrorCode::invalid_argument, "no whole weights");
      trainer.initialize();
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(none, 0);
  EXPECT_FALSE(weights_of(trainer) == before);
}

TEST(LostState, AReadThatFailsLeavesNoMixedWeights) {
  const TemporaryFolder folder;
  TrainConfig train = small_run();
  train.precision = precision_from_string("bf16");
  Trainer other(small_qwen3(), train);
  other.initialize();
  (void)one_step(other, 0);
  other.save_checkpoint(folder / "state", kSettings);
  Trainer trainer(small_qwen3(), train);
  expect_whole_or_none(trainer, [&] { trainer.load_weights(folder / "state"); });
  expect_whole_or_none(trainer, [&] { trainer.restore_checkpoint(folder / "state", kSettings); });
}

}  // namespace
}  // namespace tigon::test
