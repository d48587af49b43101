// The disk as a home: pieces, rings, planned bytes, and disks that fail in the middle of a run.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "ops/expect_error.hpp"
#include "storage/block_file_ways.hpp"
#include "storage/faulty_queue.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/train/checkpoints.hpp"
#include "tigon/train/run.hpp"
#include "train/heap_watch.hpp"
#include "train/residency/lane.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAll = "weights=nvme,gradients=nvme,states=nvme,checkpoints=nvme";

// Matrices of several pieces, the last of which is not full.
ModelConfig larger_model() {
  ModelConfig model = small_model();
  model.intermediate = 300;
  model.vocab = 211;
  return model;
}

// Real transfers: past the page cache, in the smallest pieces.
TrainConfig run_on(const fs::path& folder, const std::string& homes) {
  TrainConfig train = small_run();
  train.memory.homes = homes_from_string(homes);
  train.memory.disk = {.folder = folder, .piece = kDiskUnit};
  return train;
}

TrainConfig evaluating(TrainConfig train) {
  train.evaluates = true;
  return train;
}

StepReport one_step(Trainer& trainer, int64_t step) {
  trainer.submit(small_batch(trainer.model(), trainer.config(), step));
  return trainer.collect();
}

std::string state_of(const Trainer& trainer) {
  const TemporaryFolder folder;
  trainer.save_checkpoint(folder / "state", {});
  return read_text_file(folder / "state" / "model.safetensors", 1 << 26) +
         read_text_file(folder / "state" / "state.safetensors", 1 << 26);
}

std::string after_steps(const TrainConfig& train, int64_t steps) {
  Trainer trainer(larger_model(), train);
  trainer.initialize();
  for (int64_t i = 0; i < steps; ++i) (void)one_step(trainer, i);
  return state_of(trainer);
}

TEST(Disk, HoldsWhatItHasGivenOutAndNothingElse) {
  const TemporaryFolder folder;
  Ledger ledger;
  Disk paper(ledger), disk({.folder = folder / "blocks"}, 3 * kDiskPage);
  for (Disk* d : {&paper, &disk}) {
    const Context ctx{.memory = d};
    const OwnedTensor one(ctx, "one", DType::f32, {10}, MemoryClass::states);
    const OwnedTensor other(ctx, "other", DType::bf16, {2049}, MemoryClass::states);
    EXPECT_TRUE(on_disk(one));
    EXPECT_TRUE(on_disk(other.view.slice(0, 2048, 2049)));
    EXPECT_EQ(d->used_bytes(), 3 * kDiskPage);
  }
  EXPECT_EQ(ledger.peak_bytes(), 3 * kDiskPage);
  float here = 0;
  EXPECT_FALSE(on_disk(Tensor::contiguous(&here, DType::f32, {1})));
  EXPECT_FALSE(on_disk(Tensor{}));
  const Context ctx{.memory = &disk};
  expect_error([&] { OwnedTensor(ctx, "more", DType::f32, {1}, MemoryClass::states); }, ErrorCode::internal, "more");
}

TEST(Disk, WithoutRoomThereIsNoRun) {
  const TemporaryFolder folder;
  expect_error([&] { Disk({.folder = folder / "blocks"}, int64_t{1} << 58); }, ErrorCode::io, "no room");
}

// Two lanes at once, of tensors with many pieces and with less than one, many times what the rings hold.
TEST(Disk, LanesBringBackWhatTheyTookThere) {
  const TemporaryFolder folder;
  const std::vector<int64_t> sizes = {1, 100, 2048, 2049, 40'000, 3, 8191};
  const int64_t elements = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  Disk disk({.folder = folder / "blocks"}, (elements * 4 / kDiskPage + std::ssize(sizes)) * kDiskPage);
  HeapArena heap;
  const Context memory{.memory = &heap}, there{.memory = &disk};
  const auto ring = [&] { return memory.take("ring", disk_ring_bytes(kDiskUnit * 4), MemoryClass::other); };
  const Buffer up_ring = ring(), down_ring = ring();
  std::vector<OwnedTensor> from, home, to;
  float next = 1;
  for (const int64_t n : sizes) {
    from.emplace_back(memory, "from", DType::f32, std::initializer_list<int64_t>{n}, MemoryClass::other);
    home.emplace_back(there, "home", DType::f32, std::initializer_list<int64_t>{n}, MemoryClass::other);
    to.emplace_back(memory, "to", DType::f32, std::initializer_list<int64_t>{n}, MemoryClass::other);
  }
  Lane up({}, "up", DiskCopies(disk, {}, up_ring, kDiskUnit)),
      down({}, "down", DiskCopies(disk, {}, down_ring, kDiskUnit));
  for (int round = 0; round < 20; ++round) {
    std::vector<Lane::Copy> leave, come;
    for (size_t i = 0; i < sizes.size(); ++i) {
      float* data = from[i].view.as<float>();
      std::iota(data, data + sizes[i], next);
      std::fill_n(to[i].view.as<float>(), sizes[i], 0.0f);
      next += 1;
      leave.push_back({.to = home[i], .from = from[i]});
      come.push_back({.to = to[i], .from = home[i]});
    }
    const Moment left = down.copy({}, leave);
    up.copy({}, come, left).wait();
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(std::memcmp(to[i].view.data, from[i].view.data, static_cast<size_t>(from[i].view.bytes())), 0);
    }
  }
}

TEST(Disk, HowItIsCutChangesNoBit) {
  const TemporaryFolder folder;
  for (const std::string& precision : precision_names()) {
    TrainConfig resident = small_run();
    resident.precision = precision_from_string(precision);
    const std::string expected = after_steps(resident, 3);
    for (const char* homes : {kAll, "all,states=nvme", "weights=nvme,states=host,gradients=host"}) {
      TrainConfig train = run_on(folder / "blocks", homes);
      train.precision = resident.precision;
      EXPECT_TRUE(after_steps(train, 3) == expected) << precision << " " << homes;
    }
  }
}

TEST(Disk, PlannedIsUsedInEveryPlace) {
  const TemporaryFolder folder;
  for (const char* homes : {kAll, "all,states=nvme", "gradients=nvme,states=host", "checkpoints=nvme", "all"}) {
    for (const char* precision : {"fp32", "bf16", "bf16-sr"}) {
      for (const Order order : {Order::batches, Order::layers}) {
        for (const int64_t accumulate : {1, 3}) {
          TrainConfig train = run_on(folder / "blocks", homes);
          train.precision = precision_from_string(precision);
          train.memory.recompute = recompute_from_string("block");
          train.memory.order = order;
          train.accumulate = accumulate;
          Trainer trainer(larger_model(), train);
          trainer.initialize();
          // From the second step on, every block is as steps write it. A checkpoint reads all that the first wrote,
          // which is there then.
          (void)one_step(trainer, 0);
          (void)state_of(trainer);
          const DiskTraffic before = trainer.traffic().disk, planned = trainer.plan().disk_step;
          for (int64_t step = 1; step < 4; ++step) (void)one_step(trainer, step);
          trainer.finish();
          const DiskTraffic expected = {.read = before.read + 3 * planned.read,
                                        .written = before.written + 3 * planned.written};
          for (int wait = 0; wait < 1000 && trainer.traffic().disk.written < expected.written; ++wait)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for the last pieces
          const std::string what = std::string(homes) + " " + precision + " " + std::to_string(accumulate);
          EXPECT_EQ(trainer.used(), trainer.plan().bytes()) << what;
          EXPECT_EQ(trainer.traffic().disk, expected) << what;
        }
      }
    }
  }
}

TEST(Disk, ACheckpointMakesNoCopyOfTheStateInMemory) {
  const TemporaryFolder folder;
  ModelConfig model = small_model();
  model.vocab = 60'000;
  model.hidden = 128;
  TrainConfig train = run_on(folder / "blocks", kAll);
  train.memory.disk.piece = int64_t{1} << 16;
  Trainer trainer(model, train);
  const int64_t state = trainer.plan().disk_bytes();
  EXPECT_GT(state, int64_t{200} << 20);
  watch_heap();
  const int64_t before = heap_bytes();
  trainer.initialize();
  trainer.save_checkpoint(folder / "state", {});
  trainer.restore_checkpoint(folder / "state", {});
  EXPECT_LT(heap_peak() - before, int64_t{48} << 20);  // a piece of a file and what it is made of
}

TEST(Disk, NothingIsSeenInItsFolder) {
  const TemporaryFolder folder;
  {
    Trainer trainer(larger_model(), run_on(folder / "blocks", kAll));
    trainer.initialize();
    (void)one_step(trainer, 0);
    EXPECT_TRUE(fs::is_empty(folder / "blocks"));
    EXPECT_EQ(open_files(folder / "blocks").size(), 1U);
    EXPECT_NE(trainer.disk_text().find((folder / "blocks").string()), std::string::npos);
  }
  EXPECT_TRUE(open_files(folder / "blocks").empty());
}

// Whatever happens to the disk, at whatever moment: an error that says so, no state that is taken for whole, and a
// checkpoint from which a run goes on as if nothing had been.
class DiskFaults : public testing::Test {
 protected:
  using Rule = FaultyQueue::Rule;

  void SetUp() override {
    Trainer trainer(larger_model(), train_);
    trainer.initialize();
    for (int64_t i = 0; i < 2; ++i) (void)one_step(trainer, i);
    trainer.save_checkpoint(saved_, {});
    for (int64_t i = 2; i < 5; ++i) (void)one_step(trainer, i);
    expected_ = state_of(trainer);
  }

  // Steps until an error; false if there is none.
  bool fails(const std::function<void(Trainer&, int64_t step)>& before, const Rule& rule, const std::string& text) {
    TrainConfig train = train_;
    train.memory.disk.file = with(train.memory.disk.file, rule);
    Trainer trainer(larger_model(), train);
    trainer.restore_checkpoint(saved_, {});
    std::string said;
    try {
      for (int64_t i = 2; i < 5; ++i) {
        before(trainer, i);
        (void)one_step(trainer, i);
      }
      (void)state_of(trainer);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      said = error.what();
    }
    if (said.empty()) return false;
    EXPECT_NE(said.find(text), std::string::npos) << said;
    EXPECT_NE(said.find("resume from the last checkpoint"), std::string::npos) << said;
    EXPECT_THROW(trainer.save_checkpoint(folder_ / "spoiled", {}), Error);
    EXPECT_FALSE(fs::exists(folder_ / "spoiled"));
    return true;
  }
  void expect_resumable() {
    Trainer trainer(larger_model(), train_);
    trainer.restore_checkpoint(saved_, {});
    for (int64_t i = 2; i < 5; ++i) (void)one_step(trainer, i);
    EXPECT_TRUE(state_of(trainer) == expected_);
  }

  TemporaryFolder folder_;
  const fs::path blocks_ = folder_ / "blocks", saved_ = folder_ / "saved";
  TrainConfig train_ = evaluating(run_on(blocks_, kAll));
  std::string expected_;
};

TEST_F(DiskFaults, ATransferThatFails) {
  struct Fault {
    int64_t result;
    bool writes;
    const char* text;
  };
  for (const Fault& fault : {Fault{-EIO, false, "Input/output error"}, Fault{-EIO, true, "Input/output error"},
                             Fault{-ENOSPC, true, "No space left"}, Fault{0, false, "something cut it"}}) {
    int failed = 0;
    for (const int64_t after : {0, 1, 5, 17, 40, 80, 130, 200, 290}) {
      std::atomic<bool> armed = false;
      std::atomic<int64_t> left = after;
      const Rule rule = [&](const Transfer& t) -> std::optional<int64_t> {
        if (!armed || t.write != fault.writes || left-- != 0) return std::nullopt;
        return fault.result;
      };
      failed += fails([&](Trainer&, int64_t) { armed = true; }, rule, fault.text) ? 1 : 0;
    }
    EXPECT_EQ(failed, 9) << fault.text;
  }
  expect_resumable();
}

// Less than was asked for is no fault as long as the rest comes.
TEST_F(DiskFaults, ShortTransfersAreGoneOnWith) {
  std::atomic<int64_t> count = 0;
  const Rule rule = [&](const Transfer& t) -> std::optional<int64_t> {
    return t.bytes > kDiskPage && ++count % 3 == 0 ? std::optional<int64_t>(kDiskPage) : std::nullopt;
  };
  TrainConfig train = train_;
  train.memory.disk.file = with(train.memory.disk.file, rule);
  EXPECT_TRUE(after_steps(train, 5) == expected_);
  EXPECT_GT(count, 10);
}

TEST_F(DiskFaults, AFileThatSomebodyCutsOrChanges) {
  const auto damage = [&](const std::function<void(const fs::path&)>& how) {
    return [this, how](Trainer& trainer, int64_t step) {
      if (step != 3) return;
      trainer.finish();
      (void)state_of(trainer);  // then all of the last step is in the file
      const auto files = open_files(blocks_);
      ASSERT_EQ(files.size(), 1U);
      how(files[0]);
    };
  };
  const Rule none = [](const Transfer&) { return std::nullopt; };
  EXPECT_TRUE(fails(damage([](const fs::path& file) { fs::resize_file(file, 8192); }), none, "something cut it"));
  // What a step has written, and nobody read since, of the largest matrix's states.
  EXPECT_TRUE(fails(
      [&](Trainer& trainer, int64_t step) {
        if (step != 3) return;
        trainer.finish();
        const auto files = open_files(blocks_);
        ASSERT_EQ(files.size(), 1U);
        (void)trainer.evaluate(small_batch(trainer.model(), trainer.config(), 0)[0]);
        std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
        for (int64_t page = 0; page < trainer.plan().disk_bytes(); page += kDiskPage) {
          file.seekp(page + 8);
          file.put('x').put('y');
        }
      },
      none, "what is read is not what was written"));
  expect_resumable();
}

// A run of tigon train: what it saved before stays, and is gone on with.
TEST_F(DiskFaults, ARunGoesOnFromItsLastCheckpoint) {
  TrainConfig train = train_;
  train.steps = 6;
  RunOptions options{.checkpoints = folder_ / "calm", .save_every = 2};
  RunObserver observer;
  const std::atomic<bool> stop{false};
  const auto whole = [&] { return run_training(larger_model(), train, options, observer, stop); };
  const auto last = [&](const char* file) {
    return read_text_file(checkpoint_path(options.checkpoints, 6) / file, 1 << 26);
  };
  EXPECT_EQ(whole().trained, 6);
  const std::string weights = last("model.safetensors"), states = last("state.safetensors");
  options.checkpoints = folder_ / "hurt";
  int failed = 0;
  for (const int64_t after : {500, 900, 400}) {
    std::atomic<int64_t> left = after;
    TrainConfig hurt = train;
    hurt.memory.disk.file = with(hurt.memory.disk.file, [&](const Transfer&) -> std::optional<int64_t> {
      return left-- == 0 ? std::optional<int64_t>(-EIO) : std::nullopt;
    });
    try {
      (void)run_training(larger_model(), hurt, options, observer, stop);
    } catch (const Error& error) {
      ++failed;
      EXPECT_EQ(error.code(), ErrorCode::io);
    }
    options.resume = !list_checkpoints(options.checkpoints).empty();
    EXPECT_EQ(newest_checkpoint(options.checkpoints).empty(), !options.resume);
  }
  EXPECT_EQ(failed, 3);
  EXPECT_TRUE(options.resume);
  EXPECT_EQ(whole().steps, 6);
  EXPECT_TRUE(last("model.safetensors") == weights);
  EXPECT_TRUE(last("state.safetensors") == states);
}

// A disk slower than everything else holds the run up, and nothing grows.
TEST_F(DiskFaults, ASlowDiskIsWaitedFor) {
  std::atomic<int64_t> under_way = 0;
  const Rule rule = [&](const Transfer&) -> std::optional<int64_t> {
    if (++under_way % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return std::nullopt;
  };
  TrainConfig train = train_;
  train.memory.disk.file = with(train.memory.disk.file, rule);
  EXPECT_TRUE(after_steps(train, 5) == expected_);
}

}  // namespace
}  // namespace tigon::test
