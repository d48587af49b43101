#include "ceilings.hpp"

#include <cstring>
#include <thread>

#include "tigon/memory/arena.hpp"
#include "tigon/ops/linear.hpp"
#include "timing.hpp"

namespace tigon::bench {

double measure_copy(const Context& ctx) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  static const HostMemory from(kBytes), to(kBytes);  // kept: touching fresh pages would be measured too
  const int threads =
      ctx.threads > 0 ? ctx.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto copy = [&] {
    std::vector<std::thread> workers;
    const int64_t share = kBytes / threads;
    for (int t = 0; t < threads; ++t) {
      // memcpy of this size stores past the cache, as the kernels do.
      workers.emplace_back(
          [=] { std::memcpy(to.data() + t * share, from.data() + t * share, static_cast<size_t>(share)); });
    }
    for (std::thread& worker : workers) worker.join();
  };
  static const bool touched = [&] {
    std::memset(from.data(), 1, static_cast<size_t>(kBytes));
    copy();
    return true;
  }();
  (void)touched;
  std::vector<double> samples;
  for (int i = 0; i < 7; ++i) samples.push_back(time_ms(copy));
  return 2.0 * static_cast<double>(kBytes) / (quantile(samples, 0.5) * 1e-3);
}

double measure_gemm(const Context& ctx) {
  constexpr int64_t kSize = 2048;
  Context inner = ctx;
  HeapArena arena;
  inner.memory = &arena;
  const OwnedTensor x(inner, "x", DType::f32, {kSize, kSize}, MemoryClass::other);
  const OwnedTensor w(inner, "w", DType::f32, {kSize, kSize}, MemoryClass::other);
  const OwnedTensor y(inner, "y", DType::f32, {kSize, kSize}, MemoryClass::other);
  for (const Tensor& t : {x.view, w.view}) {
    for (int64_t i = 0; i < kSize * kSize; ++i) t.as<float>()[i] = static_cast<float>(i % 97) * 0.01f - 0.5f;
  }
  std::vector<double> samples;
  for (int i = 0; i < 6; ++i)
    samples.push_back(time_ms([&] { ops::linear_forward(inner, {.x = x, .weight = w, .y = y}); }));
  return 2.0 * static_cast<double>(kSize * kSize * kSize) /
         (quantile({samples.begin() + 1, samples.end()}, 0.5) * 1e-3);
}

}  // namespace tigon::bench
