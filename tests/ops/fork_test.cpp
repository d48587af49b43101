// A program may fork after it has used the library, as Python's multiprocessing does.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tigon/memory/arena.hpp"
#include "tigon/ops/linear.hpp"

namespace tigon::test {
namespace {

// A product on several threads, large enough for as many tasks.
bool multiply() {
  constexpr int64_t kSize = 512;
  HeapArena heap;
  const Context ctx{.threads = 4, .memory = &heap};
  std::vector<float> x(kSize * kSize, 1.0f), weight = x, y(kSize * kSize);
  const auto view = [](std::vector<float>& v) { return Tensor::contiguous(v.data(), DType::f32, {kSize, kSize}); };
  ops::linear_forward(ctx, {.x = view(x), .weight = view(weight), .y = view(y)});
  return std::all_of(y.begin(), y.end(), [](float value) { return value == static_cast<float>(kSize); });
}

TEST(Fork, TheChildRunsOpsToo) {
  ASSERT_TRUE(multiply());  // OpenMP's threads are there, and stay behind
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    bool ok = multiply();
    std::thread([&] { ok = multiply() && ok; }).join();
    _exit(ok ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "it hung, or its result is wrong";
  EXPECT_TRUE(multiply());
}

}  // namespace
}  // namespace tigon::test
