// A signal may come while the library multiplies, in any program: its handler must find a stack.
#if defined(__x86_64__)

#include <gtest/gtest.h>
#include <pthread.h>
#include <ucontext.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <stop_token>
#include <thread>
#include <vector>

#include "backend/cpu/gemm.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/attention.hpp"

namespace tigon::test {
namespace {

uintptr_t stack_begin, stack_end;
volatile sig_atomic_t signals, off_the_stack;

// On a stack of its own: what it looks for would overwrite the heap.
void look(int, siginfo_t*, void* context) {
  const auto at = static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
  signals = signals + 1;
  if (at < stack_begin || at >= stack_end) off_the_stack = off_the_stack + 1;
}

// Runs the work for a while under signals, and expects all of them to find the thread's stack.
template <class Work>
void expect_a_stack_during(const Work& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  void* begin = nullptr;
  size_t bytes = 0;
  (void)pthread_attr_getstack(&attributes, &begin, &bytes);
  (void)pthread_attr_destroy(&attributes);
  stack_begin = reinterpret_cast<uintptr_t>(begin);
  stack_end = stack_begin + bytes;
  signals = 0;
  off_the_stack = 0;

  static std::array<std::byte, 1 << 16> memory;
  stack_t own{}, stack_before{};
  own.ss_sp = memory.data();
  own.ss_size = memory.size();
  (void)sigaltstack(&own, &stack_before);
  struct sigaction action {
  }, action_before{};
  action.sa_sigaction = look;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  (void)sigaction(SIGALRM, &action, &action_before);
  // Sent to this thread: one sent to the process goes to whichever thread takes signals, such as an idle worker.
  std::jthread sender([to = pthread_self()](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)pthread_kill(to, SIGALRM);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });

  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
  while (std::chrono::steady_clock::now() < until) work();
  sender.request_stop();
  sender.join();
  (void)sigaction(SIGALRM, &action_before, nullptr);
  (void)sigaltstack(&stack_before, nullptr);
  EXPECT_GT(signals, 0);
  EXPECT_EQ(off_the_stack, 0) << "of " << signals;
}

TEST(Signals, FindAStackWhileProductsRun) {
  HeapArena heap;
  const Context ctx{.threads = 1, .memory = &heap};
  std::vector<float> a(256 * 256, 1.0f), b(256 * 256, 1.0f), c(256 * 256);
  const auto at = [](std::vector<float>& v, int64_t rows, int64_t columns) {
    return Tensor::contiguous(v.data(), DType::f32, {rows, columns});
  };
  expect_a_stack_during([&] {
    for (const int64_t m : {16, 64, 256}) {
      for (const bool transposed : {false, true}) {
        cpu::gemm(ctx, {.a = transposed ? at(a, 128, m) : at(a, m, 128),
                        .b = at(b, 256, 128),
                        .c = at(c, m, 256),
                        .a_transposed = transposed,
                        .b_transposed = true});
      }
    }
  });
}

TEST(Signals, FindAStackWhileAttentionRuns) {
  HeapArena heap;
  const Context ctx{.threads = 1, .memory = &heap};
  std::vector<float> q(128 * 4 * 64, 0.1f), k = q, v = q, o = q, lse(4 * 128);
  const auto at = [](std::vector<float>& values) {
    return Tensor::contiguous(values.data(), DType::f32, {1, 128, 4, 64});
  };
  expect_a_stack_during([&] {
    ops::attention_forward(ctx, {.q = at(q),
                                 .k = at(k),
                                 .v = at(v),
                                 .o = at(o),
                                 .lse = Tensor::contiguous(lse.data(), DType::f32, {1, 4, 128})});
  });
}

}  // namespace
}  // namespace tigon::test

#endif
