// What the machine and its control groups grant, as files of the kernel's that a test writes.
#include "train/spare_memory.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "train/small_model.hpp"

namespace tigon::test {
namespace {

class SpareMemory : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text;
  }
  std::optional<int64_t> spare() const { return spare_host_memory(folder_ / ""); }

 private:
  TemporaryFolder folder_;
};

TEST_F(SpareMemory, OfASystemThatDoesNotSay) { EXPECT_EQ(spare(), std::nullopt); }

TEST_F(SpareMemory, OfTheMachine) {
  write("proc/meminfo", "MemTotal:  2000 kB\nMemFree:   10 kB\nMemAvailable:    1000 kB\n");
  EXPECT_EQ(spare(), 1000 * 1024);
  write("proc/self/cgroup", "0::/user.slice\n");
  write("sys/fs/cgroup/user.slice/memory.max", "max\n");
  write("sys/fs/cgroup/user.slice/memory.current", "5000\n");
  EXPECT_EQ(spare(), 1000 * 1024);
}

TEST_F(SpareMemory, OfTheTightestGroup) {
  write("proc/meminfo", "MemAvailable:    1000 kB\n");
  write("proc/self/cgroup", "0::/a/b/c\n");
  write("sys/fs/cgroup/a/b/memory.max", "9000\n");
  write("sys/fs/cgroup/a/b/memory.current", "5000\n");
  write("sys/fs/cgroup/a/b/memory.stat", "anon 3000\ninactive_file 700\nactive_file 300\n");
  write("sys/fs/cgroup/a/memory.max", "90000\n");
  write("sys/fs/cgroup/a/memory.current", "5000\n");
  EXPECT_EQ(spare(), 9000 - 5000 + 1000);
  write("sys/fs/cgroup/a/memory.max", "4000\n");
  EXPECT_EQ(spare(), 0);
}

// A container sees its own group at the top, whatever its path.
TEST_F(SpareMemory, OfAContainer) {
  write("proc/meminfo", "MemAvailable:    1000 kB\n");
  write("proc/self/cgroup", "0::/docker/1234\n");
  write("sys/fs/cgroup/memory.max", "8000\n");
  write("sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(spare(), 7000);
}

TEST_F(SpareMemory, OfTheFirstVersion) {
  write("proc/meminfo", "MemAvailable:    1000 kB\n");
  write("proc/self/cgroup", "5:cpu:/other\n4:hugetlb,memory:/box\n");
  write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "6000\n");
  write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "3000\n");
  write("sys/fs/cgroup/memory/box/memory.stat", "inactive_file 1\ntotal_inactive_file 500\ntotal_active_file 0\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "3000\n");
  EXPECT_EQ(spare(), 3500);
}

}  // namespace
}  // namespace tigon::test
