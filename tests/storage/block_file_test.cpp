#include "tigon/storage/block_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <deque>
#include <random>
#include <thread>

#include "storage/block_file_ways.hpp"
#include "tigon/core/error.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;

INSTANTIATE_TEST_SUITE_P(By, BlockFiles, testing::ValuesIn(kWays), way_name);

TEST_P(BlockFiles, TakesNoWayThatWasNotAllowed) {
  const BlockFile file(folder(), "blocks", 100, options());
  EXPECT_TRUE(GetParam().direct || !file.direct());
  EXPECT_TRUE(GetParam().ring || !file.ring());
}

// Requests of all sizes and alignments, up to a hundred under way and many of them over each other, against a string.
TEST_P(BlockFiles, RandomRequestsAreWhatMemoryWouldDo) {
  constexpr int64_t kBytes = 300'001;
  constexpr size_t kMostUnderWay = 100;
  struct UnderWay {
    BlockFile::Ticket ticket;
    Memory memory;
    std::string expected;  // of a read
  };
  for (const unsigned seed : {1u, 2u, 3u}) {
    BlockFile file(folder(), "blocks", kBytes, options());
    std::string model(kBytes, '\0');
    Memory zeros(kBytes);
    std::memset(zeros.data(), 0, kBytes);
    file.wait(file.write(0, zeros.data(), kBytes));
    std::mt19937_64 random(seed);
    const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % static_cast<uint64_t>(end)); };
    std::deque<UnderWay> under_way;
    const auto finish = [&](size_t which) {
      UnderWay& one = under_way[which];
      file.wait(one.ticket);
      if (!one.expected.empty()) {
        ASSERT_TRUE(one.expected == one.memory.text()) << "seed " << seed << ", ticket " << one.ticket;
      }
      under_way.erase(under_way.begin() + static_cast<int64_t>(which));
    };
    for (int i = 0; i < 1500; ++i) {
      int64_t offset = below(kBytes), bytes = below(5) == 0 ? below(kBytes) : below(20000);
      if (below(2) == 0) {
        offset = offset / 4096 * 4096;
        bytes = (bytes + 4095) / 4096 * 4096;
      }
      bytes = std::min(bytes, kBytes - offset);
      UnderWay one{.ticket = 0, .memory = Memory(bytes, below(2) * below(100)), .expected = {}};
      const auto at = static_cast<size_t>(offset), n = static_cast<size_t>(bytes);
      if (below(2) == 0) {
        one.memory.fill(random());
        model.replace(at, n, one.memory.text());
        one.ticket = file.write(offset, one.memory.data(), bytes);
      } else {
        one.expected = model.substr(at, n);
        one.ticket = file.read(offset, one.memory.data(), bytes);
      }
      under_way.push_back(std::move(one));
      while (under_way.size() > kMostUnderWay || (!under_way.empty() && below(3) == 0)) {
        ASSERT_NO_FATAL_FAILURE(finish(static_cast<size_t>(below(static_cast<int64_t>(under_way.size())))));
      }
    }
    while (!under_way.empty()) ASSERT_NO_FATAL_FAILURE(finish(0));
    Memory all(kBytes);
    file.wait(file.read(0, all.data(), kBytes));
    EXPECT_TRUE(all.text() == model);
  }
}

// None lies over another, yet each changes pages that its neighbours change too.
TEST_P(BlockFiles, NeighboursInAPageKeepTheirBytes) {
  constexpr int64_t kEach = 1000, kBytes = 100 * kEach;
  Memory written(kBytes), back(kBytes);
  written.fill(1);
  for (const bool backwards : {false, true}) {
    BlockFile file(folder(), "blocks", kBytes, options());
    for (int64_t i = 0; i < kBytes; i += kEach) {
      const int64_t offset = backwards ? kBytes - kEach - i : i;
      file.write(offset, written.data() + offset, kEach);
    }
    file.wait(file.read(0, back.data(), kBytes));
    EXPECT_TRUE(written.text() == back.text());
  }
}

TEST_P(BlockFiles, ManyThreadsShareOne) {
  constexpr int64_t kEach = 40'000;
  BlockFile file(folder(), "blocks", 8 * kEach, options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&file, t] {
      for (uint64_t round = 0; round < 20; ++round) {
        Memory written(kEach), back(kEach);
        written.fill(round * 8 + static_cast<uint64_t>(t));
        const auto first = file.write(t * kEach, written.data(), kEach);
        file.wait(file.read(t * kEach, back.data(), kEach));  // after the write, which it overlaps
        file.wait(first);
        EXPECT_TRUE(written.text() == back.text());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(BlockFiles, CountsWhatTheDiskMoves) {
  BlockFile file(folder(), "blocks", 1 << 20, options());
  Memory memory(1 << 20);
  memory.fill(1);
  file.wait(file.write(0, memory.data(), 1 << 20));
  file.wait(file.read(4096, memory.data(), 8192));
  EXPECT_EQ(file.bytes_written(), 1 << 20);
  EXPECT_EQ(file.bytes_read(), 8192);
  file.wait(file.write(10, memory.data(), 20));
  EXPECT_EQ(file.bytes_written(), (1 << 20) + (file.direct() ? 4096 : 20));
  EXPECT_EQ(file.bytes_read(), 8192 + (file.direct() ? 4096 : 0));
}

TEST_P(BlockFiles, NothingToDoIsDone) {
  BlockFile file(folder(), "blocks", 10, options());
  file.wait(file.write(10, nullptr, 0));
  file.wait(file.read(0, nullptr, 0));
  EXPECT_EQ(file.bytes_written() + file.bytes_read(), 0);
}

TEST_P(BlockFiles, HasItsRoomFromTheBeginningAndNoName) {
  const BlockFile file(folder(), "blocks", 3'000'000, options());
  EXPECT_TRUE(fs::is_empty(folder()));
  const auto open = open_files(folder());
  ASSERT_EQ(open.size(), 1u);
  struct stat about = {};
  ASSERT_EQ(::stat(open[0].c_str(), &about), 0);
  EXPECT_GE(about.st_size, 3'000'000);
  EXPECT_GE(about.st_blocks * 512, 3'000'000);
}

// A byte that changes on the disk.
void flip(const fs::path& folder, int64_t offset) {
  const auto open = open_files(folder);
  ASSERT_EQ(open.size(), 1u);
  const int handle = ::open(open[0].c_str(), O_RDWR | O_CLOEXEC);
  char byte = 0;
  ASSERT_EQ(::pread(handle, &byte, 1, offset), 1);
  byte = static_cast<char>(byte ^ 1);
  ASSERT_EQ(::pwrite(handle, &byte, 1, offset), 1);
  ASSERT_EQ(::close(handle), 0);
}

TEST_P(BlockFiles, FirstReadFindsWhatChangedOnTheDisk) {
  for (const int64_t offset : {0, 8192, 5000}) {
    BlockFile file(folder(), "weights", 200'000, options());
    Memory memory(100'000);
    memory.fill(1);
    file.wait(file.write(offset, memory.data(), memory.bytes()));
    flip(folder(), offset + 70'000);
    file.wait(file.read(offset, memory.data(), 16'000));  // another part
    try {
      file.wait(file.read(offset, memory.data(), memory.bytes()));
      ADD_FAILURE() << "not found";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      const std::string text = error.what();
      for (const std::string& part :
           {"weights in " + folder().string(), std::string("offset"), std::string("checksum")})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST_P(BlockFiles, ReadOverSeveralWritesComparesThemAll) {
  BlockFile file(folder(), "weights", 200'000, options());
  Memory memory(100'000);
  memory.fill(1);
  file.wait(file.write(0, memory.data(), 30'000));
  file.wait(file.write(30'000, memory.data(), 777));
  file.wait(file.write(30'777, memory.data(), 50'000));
  flip(folder(), 30'100);
  EXPECT_THROW(file.wait(file.read(0, memory.data(), 100'000)), Error);
}

TEST_P(BlockFiles, LaterReadsAndThoseToldNotToDoNotCompare) {
  for (const bool verify : {true, false}) {
    BlockFileOptions how = options();
    how.verify = verify;
    BlockFile file(folder(), "weights", 8192, how);
    Memory written(8192), back(8192);
    written.fill(1);
    file.wait(file.write(0, written.data(), 8192));
    if (verify) file.wait(file.read(0, back.data(), 8192));
    flip(folder(), 5000);
    file.wait(file.read(0, back.data(), 8192));
    EXPECT_EQ(back.data()[5000], static_cast<char>(written.data()[5000] ^ 1));
  }
}

TEST_P(BlockFiles, AFileThatWasCutIsAnError) {
  BlockFile file(folder(), "weights", 200'000, options());
  Memory memory(200'000);
  memory.fill(1);
  file.wait(file.write(0, memory.data(), 200'000));
  ASSERT_EQ(open_files(folder()).size(), 1u);
  ASSERT_EQ(::truncate(open_files(folder())[0].c_str(), 100'000), 0);
  file.wait(file.read(0, memory.data(), 90'000));
  try {
    file.wait(file.read(0, memory.data(), 200'000));
    ADD_FAILURE() << "not found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("something cut it"), std::string::npos) << error.what();
  }
}

TEST(BlockFile, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  EXPECT_THROW(BlockFile(folder / "", "blocks", 0), Error);
  EXPECT_THROW(BlockFile(folder / "", "blocks", -1), Error);
  EXPECT_THROW(BlockFile(folder / "", "blocks", 10, {.piece_bytes = 5000}), Error);
  EXPECT_THROW(BlockFile(folder / "", "blocks", 10, {.depth = 0}), Error);
  EXPECT_THROW(BlockFile("/proc/none", "blocks", 10), Error);
  BlockFile file(folder / "", "blocks", 10);
  char memory[20] = {};
  EXPECT_THROW(file.write(0, memory, 11), Error);
  EXPECT_THROW(file.write(-1, memory, 1), Error);
  EXPECT_THROW(file.write(0, nullptr, 1), Error);
  EXPECT_THROW(file.read(5, memory, 6), Error);
  EXPECT_THROW(file.read(5, memory, -6), Error);
  EXPECT_THROW(file.read(INT64_MAX, memory, 6), Error);
  EXPECT_THROW(file.wait(0), Error);
  EXPECT_THROW(file.wait(-1), Error);
  file.wait(file.write(0, memory, 10));  // none of these is the file's own fault
}

TEST(BlockFile, SaysWhatAFullDiskLacks) {
  const TemporaryFolder folder;
  constexpr int64_t kTooMuch = int64_t{1} << 50;
  try {
    const BlockFile file(folder / "", "blocks", kTooMuch);
    ADD_FAILURE() << "made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    const std::string text = error.what();
    EXPECT_NE(text.find(std::to_string(kTooMuch) + " bytes free"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tigon::test
