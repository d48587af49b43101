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

// Checksums come from what is written: a large checkpoint is not read again.
TEST(LostState, ASaveReadsNothing) {
  const TemporaryFolder folder;
  Trainer trainer(small_model(), small_run());
  trainer.initialize();
  fail_read(1);
  trainer.save_checkpoint(folder / "state", kSettings);
  EXPECT_FALSE(read_failed());
  fail_read(0);
  trainer.restore_checkpoint(folder / "state", kSettings);
}

// In a child that is killed before its n-th change of the disk: whether it was, or came to its end.
bool killed_at(int64_t n, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    end_before_change(n);
    try {
      work();
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kEnded)) << status;
  return WEXITSTATUS(status) == kEnded;
}

class Killed : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { refuse_exchange(GetParam()); }
  void TearDown() override { refuse_exchange(false); }
};
INSTANTIATE_TEST_SUITE_P(LostState, Killed, testing::Values(false, true),
                         [](const auto& name) { return name.param ? "WithoutExchange" : "WithExchange"; });

// Saved over one of the same name, and killed at every point; what comes after the kill may be killed as well.
TEST_P(Killed, AReplacementLeavesTheOldOneOrTheNewOne) {
  ModelConfig model = small_model();
  model.layers = 1;
  Trainer trainer(model, small_run()), reader(model, small_run());
  trainer.initialize();
  const std::string old = weights_of(trainer);
  const TemporaryFolder folder;
  trainer.save_checkpoint(folder / "old", kSettings);
  (void)one_step(trainer, 0);
  const std::string fresh = weights_of(trainer);

  int news = 0, olds = 0, by_renames = 0;
  const auto check = [&](const fs::path& runs, int64_t n, int64_t m) {
    const fs::path path = checkpoint_path(runs, 7);
    by_renames += fs::exists(path) ? 0 : 1;
    fs::copy(runs, folder / "direct", fs::copy_options::recursive);
    reader.restore_checkpoint(checkpoint_path(folder / "direct", 7), kSettings);  // without the cleaning before it
    fs::remove_all(folder / "direct");
    remove_unfinished(runs);
    ASSERT_EQ(newest_checkpoint(runs), path) << n << ", " << m;
    EXPECT_EQ(std::distance(fs::directory_iterator(runs), {}), 1) << n << ", " << m;
    reader.restore_checkpoint(path, kSettings);
    const std::string now = weights_of(reader);
    ASSERT_TRUE(now == old || now == fresh) << n << ", " << m;
    ++(now == old ? olds : news);
  };
  bool killed = true;
  for (int64_t n = 1; killed && !HasFatalFailure(); ++n) {
    const fs::path runs = folder / ("runs" + std::to_string(n)), again = folder / "again";
    make_folder(runs);
    fs::copy(folder / "old", checkpoint_path(runs, 7));
    killed = killed_at(n, [&] { trainer.save_checkpoint(checkpoint_path(runs, 7), kSettings); });
    for (int64_t m = 1;; ++m) {
      fs::remove_all(again);
      fs::copy(runs, again, fs::copy_options::recursive);
      if (!killed_at(m, [&] { remove_unfinished(again); })) break;
      check(again, n, m);
    }
    check(runs, n, 0);
    fs::remove_all(runs);
  }
  EXPECT_GT(olds, 0);
  EXPECT_GT(news, 0);
  EXPECT_EQ(by_renames > 0, GetParam()) << "only where names cannot be exchanged there is a moment without one";
}

}  // namespace
}  // namespace tigon::test
