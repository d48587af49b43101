// What disks, kernels and other processes do to a BlockFile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "storage/block_file_ways.hpp"
#include "storage/faulty_queue.hpp"
#include "tigon/core/error.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;

// The text of the Error that waiting gives; empty where it gives none.
std::string error_of(BlockFile& file, BlockFile::Ticket ticket) {
  try {
    file.wait(ticket);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    return error.what();
  }
  return "";
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in " << text;
}

class BlockFileFaults : public BlockFiles {};
INSTANTIATE_TEST_SUITE_P(By, BlockFileFaults, testing::ValuesIn(kWays), way_name);

constexpr int64_t kBytes = 200'704;  // 49 pages

TEST_P(BlockFileFaults, AFailedWriteSaysWhereAndEndsTheFile) {
  std::atomic<bool> held = false;
  BlockFile file(folder(), "states", kBytes, with(options(), [&held](const Transfer& t) -> std::optional<int64_t> {
                   while (held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   return t.write && t.offset == 65'536 ? std::optional<int64_t>(-EIO) : std::nullopt;
                 }));
  Memory memory(kBytes);
  memory.fill(1);
  const auto good = file.write(0, memory.data(), 32'768);
  file.wait(good);
  held = true;
  const auto bad = file.write(32'768, memory.data(), 100'000), after = file.write(60'000, memory.data(), 10'000);
  held = false;
  const std::string text = error_of(file, bad);
  expect_parts(text, {"states in " + folder().string(), "16384 bytes at offset 65536", "cannot be written",
                      "Input/output error", "resume from the last checkpoint"});
  EXPECT_EQ(error_of(file, good), "");
  EXPECT_EQ(error_of(file, bad), text);
  EXPECT_EQ(error_of(file, after), text);
  EXPECT_THROW(file.write(0, memory.data(), 1), Error);
  EXPECT_THROW(file.read(0, memory.data(), 1), Error);
}

TEST_P(BlockFileFaults, ADiskThatFillsUpInTheMiddleOfAWrite) {
  BlockFile file(folder(), "states", kBytes, with(options(), [](const Transfer& t) -> std::optional<int64_t> {
                   if (t.offset == 16'384) return 8192;
                   return t.offset == 16'384 + 8192 ? std::optional<int64_t>(-ENOSPC) : std::nullopt;
                 }));
  Memory memory(kBytes);
  memory.fill(1);
  expect_parts(error_of(file, file.write(0, memory.data(), kBytes)),
               {"16384 bytes at offset 16384", "No space left", "16384 bytes written", "8192", "Free space"});
}

TEST_P(BlockFileFaults, AFailedRead) {
  std::atomic<int64_t> fault = 0;
  BlockFile file(folder(), "states", kBytes, with(options(), [&fault](const Transfer& t) -> std::optional<int64_t> {
                   return t.write || fault == 0 ? std::nullopt : std::optional<int64_t>(-fault);
                 }));
  Memory memory(kBytes);
  memory.fill(1);
  file.wait(file.write(0, memory.data(), kBytes));
  file.wait(file.read(0, memory.data(), kBytes));
  fault = ESTALE;
  expect_parts(error_of(file, file.read(4096, memory.data(), 4096)), {"4096 bytes at offset 4096", "cannot be read"});
}

// The page of which a write changes a part has to be read first.
TEST_P(BlockFileFaults, AFailedReadBeforeAWrite) {
  BlockFile file(folder(), "states", kBytes, with(options(), [](const Transfer& t) -> std::optional<int64_t> {
                   return t.write ? std::nullopt : std::optional<int64_t>(-EIO);
                 }));
  char memory[10] = {};
  const auto ticket = file.write(5000, memory, 10);
  if (file.direct()) {
    expect_parts(error_of(file, ticket), {"4096 bytes at offset 4096", "cannot be read", "Input/output error"});
  } else {
    EXPECT_EQ(error_of(file, ticket), "");
  }
}

TEST_P(BlockFileFaults, TransfersThatEndEarlyOrAreInterruptedGoOn) {
  std::atomic<int> count = 0;
  BlockFile file(folder(), "states", kBytes, with(options(), [&count](const Transfer& t) -> std::optional<int64_t> {
                   const int n = count++;
                   if (n % 5 == 1) return -EINTR;
                   return n % 2 == 0 && t.bytes > 4096 ? std::optional<int64_t>(4096) : std::nullopt;
                 }));
  for (const int64_t shift : {0, 100}) {
    Memory written(100'000), back(100'000);
    written.fill(1);
    file.wait(file.write(shift, written.data(), written.bytes()));
    file.wait(file.read(shift, back.data(), back.bytes()));
    EXPECT_TRUE(written.text() == back.text());
  }
}

TEST_P(BlockFileFaults, AReadThatGetsNothing) {
  BlockFile file(folder(), "states", kBytes, with(options(), [](const Transfer& t) -> std::optional<int64_t> {
                   return t.write ? std::nullopt : std::optional<int64_t>(t.bytes > 4096 ? 4096 : 0);
                 }));
  Memory memory(kBytes);
  const std::string text = error_of(file, file.read(0, memory.data(), 12'288));
  expect_parts(text, {"12288 bytes at offset 0", "the file ends there", "12288 bytes read", "8192"});
}

TEST_P(BlockFileFaults, WaitsForLateTransfers) {
  std::atomic<bool> held = true;
  BlockFile file(folder(), "states", kBytes, with(options(), [&held](const Transfer&) -> std::optional<int64_t> {
                   while (held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   return std::nullopt;
                 }));
  Memory memory(kBytes);
  memory.fill(1);
  const auto ticket = file.write(0, memory.data(), kBytes);
  std::atomic<bool> done = false;
  std::thread waiter([&] {
    file.wait(ticket);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(done);
  held = false;
  waiter.join();
}

// FaultyQueue's own destructor sees that nothing is left under way, where the memory would be gone.
TEST_P(BlockFileFaults, GoesInTheMiddleOfRequests) {
  for (int i = 0; i < 20; ++i) {
    Memory memory(kBytes), back(kBytes);
    memory.fill(1);
    BlockFile file(folder(), "states", kBytes,
                   with(options(), [](const Transfer&) -> std::optional<int64_t> { return std::nullopt; }));
    for (int j = 0; j < i; ++j) {
      file.write(j * 100, memory.data(), 100'000);
      file.read(4096, back.data(), 100'000);
    }
  }
}

// A folder for a test and the processes that it starts, which run its beginning again and end without destructors.
class SharedFolder {
 public:
  SharedFolder() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // programs of their own, so without the threads of this one
    if (const char* path = std::getenv(kVariable)) {
      path_ = path;
      return;
    }
    own_.emplace();
    path_ = *own_ / "blocks";
    setenv(kVariable, path_.c_str(), 1);
  }
  ~SharedFolder() {
    if (own_) unsetenv(kVariable);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  static constexpr const char* kVariable = "TIGON_TEST_FOLDER";
  std::optional<TemporaryFolder> own_;
  fs::path path_;
};

TEST_P(BlockFileFaults, AKilledProcessLeavesNothing) {
  const SharedFolder folder;
  EXPECT_EXIT(
      {
        BlockFile file(folder.path(), "states", kBytes, options());
        Memory memory(kBytes);
        memory.fill(1);
        file.wait(file.write(0, memory.data(), kBytes));
        for (int i = 0; i < 100; ++i) file.write(0, memory.data(), kBytes);
        (void)raise(SIGKILL);
      },
      testing::KilledBySignal(SIGKILL), "");
  EXPECT_TRUE(fs::exists(folder.path()) && fs::is_empty(folder.path()));
}

// From now on the kernel answers this system call with an error, as the filters of containers do. With `flag`, only
// where it is set in the third argument. False where such filters are not to be had.
bool forbid(int call, int reason, uint32_t flag = 0) {
  const auto number = static_cast<uint32_t>(call);
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, flag),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, flag, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(reason)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = sizeof steps / sizeof steps[0], .filter = steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

constexpr int kSkipped = 77;

// Writes and reads with what the kernel still allows, and ends the process with 0 if all was right.
[[noreturn]] void work_and_exit(const fs::path& folder, bool may_have_ring) {
  bool good = false;
  {
    BlockFile file(folder, "states", kBytes);
    Memory written(100'001), back(100'001);
    written.fill(1);
    file.wait(file.write(77, written.data(), written.bytes()));
    file.wait(file.read(77, back.data(), back.bytes()));
    good = written.text() == back.text() && fs::is_empty(folder) && (may_have_ring || !file.ring());
  }
  std::_Exit(good ? 0 : 1);
}

bool worked_or_skipped(int status) {
  return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kSkipped);
}

TEST(BlockFileKernel, WithoutRings) {
  const SharedFolder folder;
  for (const int reason : {EPERM, ENOSYS}) {
    EXPECT_EXIT(
        {
          if (!forbid(SYS_io_uring_setup, reason)) std::_Exit(kSkipped);
          work_and_exit(folder.path(), false);
        },
        worked_or_skipped, "");
  }
}

// Some kernels let a ring be made and then refuse its use.
TEST(BlockFileKernel, WithRingsThatCannotBeUsed) {
  const SharedFolder folder;
  EXPECT_EXIT(
      {
        if (!forbid(SYS_io_uring_enter, EPERM)) std::_Exit(kSkipped);
        work_and_exit(folder.path(), false);
      },
      worked_or_skipped, "");
}

TEST(BlockFileKernel, WithRingsThatRegisterNothing) {
  const SharedFolder folder;
  EXPECT_EXIT(
      {
        if (!forbid(SYS_io_uring_register, ENOMEM)) std::_Exit(kSkipped);
        work_and_exit(folder.path(), true);
      },
      worked_or_skipped, "");
}

TEST(BlockFileKernel, WithoutFilesThatHaveNoName) {
  const SharedFolder folder;
  EXPECT_EXIT(
      {
        if (!forbid(SYS_openat, EOPNOTSUPP, O_TMPFILE)) std::_Exit(kSkipped);
        work_and_exit(folder.path(), true);
      },
      worked_or_skipped, "");
}

TEST(BlockFileKernel, WithoutReservations) {
  const SharedFolder folder;
  EXPECT_EXIT(
      {
        if (!forbid(SYS_fallocate, EOPNOTSUPP)) std::_Exit(kSkipped);
        work_and_exit(folder.path(), true);
      },
      worked_or_skipped, "");
}

TEST(BlockFileKernel, WithADiskThatIsFullerThanItSays) {
  const SharedFolder folder;
  EXPECT_EXIT(
      {
        if (!forbid(SYS_fallocate, ENOSPC)) std::_Exit(kSkipped);
        try {
          const BlockFile file(folder.path(), "states", kBytes);
        } catch (const Error& error) {
          const std::string text = error.what();
          const bool good = text.find("there is no room") != std::string::npos &&
                            text.find(std::to_string(kBytes) + " bytes free") != std::string::npos &&
                            fs::is_empty(folder.path());
          std::_Exit(good ? 0 : 1);
        }
        std::_Exit(2);
      },
      worked_or_skipped, "");
}

}  // namespace
}  // namespace tigon::test
