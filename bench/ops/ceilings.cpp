#include "ceilings.hpp"

#include <cstring>
#include <thread>

#include "tigon/memory/arena.hpp"
#include "tigon/ops/linear.hpp"
#include "timing.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tigon::bench {

namespace {

// A copy whose stores go past the cache, as the kernels' do: without that each line written is read first.
void stream_copy(std::byte* to, const std::byte* from, int64_t bytes) {
#if defined(__SSE2__)
  for (int64_t i = 0; i < bytes; i += 64) {
    const auto* in = reinterpret_cast<const __m128i*>(from + i);
    auto* out = reinterpret_cast<__m128i*>(to + i);
    for (int j = 0; j < 4; ++j) _mm_stream_si128(out + j, _mm_load_si128(in + j));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, static_cast<size_t>(bytes));
#endif
}

}  // namespace

double measure_copy(const Context& ctx) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  static const HostMemory from(kBytes), to(kBytes);  // kept: touching fresh pages would be measured too
  const int threads =
      ctx.threads > 0 ? ctx.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto copy = [&] {
    std::vector<std::thread> workers;
    const int64_t share = kBytes / threads / 64 * 64;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([=] { stream_copy(to.data() + t * share, from.data() + t * share, share); });
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
