#include "ceilings.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"
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

// The median time of a piece of work that is queued several times in a row, after two that warm up.
template <class F>
double median_on_device(const Context& ctx, int runs, const F& f) {
  for (int i = 0; i < 2; ++i) f();
  Clock clock(ctx);
  std::vector<size_t> marks = {clock.mark()};
  for (int i = 0; i < runs; ++i) {
    f();
    marks.push_back(clock.mark());
  }
  std::vector<double> samples;
  for (size_t i = 1; i < marks.size(); ++i) samples.push_back(clock.ms(marks[i - 1], marks[i]));
  return quantile(samples, 0.5);
}

double measure_device_copy(const Context& ctx) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const DeviceMemory from(ctx.device, kBytes), to(ctx.device, kBytes);
  device_fill(ctx, from.data(), 0x35, kBytes);
  const double ms = median_on_device(ctx, 7, [&] { device_copy(ctx, to.data(), from.data(), kBytes); });
  return 2.0 * static_cast<double>(kBytes) / (ms * 1e-3);
}

double measure_device_gemm(const Context& ctx, bool quick) {
  constexpr int64_t kSize = 8192;
  Context inner = ctx;
  DeviceArena arena(ctx.device);
  inner.memory = &arena;
  const OwnedTensor x(inner, "x", DType::bf16, {kSize, kSize}, MemoryClass::other);
  const OwnedTensor w(inner, "w", DType::bf16, {kSize, kSize}, MemoryClass::other);
  const OwnedTensor y(inner, "y", DType::bf16, {kSize, kSize}, MemoryClass::other);
  // Not zeros: a chip that draws less power runs faster. The host takes its time over them: when in a hurry it makes
  // some rows and repeats them.
  const int64_t filled = quick ? 512 : kSize;
  std::vector<bf16> values(static_cast<size_t>(filled * kSize));
  uint32_t state = 1;
  for (bf16& value : values) {
    state = state * 1664525u + 1013904223u;
    value = bf16(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
  }
  for (const Tensor& t : {x.view, w.view}) {
    for (int64_t row = 0; row < kSize; row += filled) {
      const Tensor rows = t.slice(0, row, row + filled);
      device_copy(ctx, rows.data, values.data(), rows.bytes());
    }
  }
  synchronize(ctx);
  // Scratch is planned: a block taken from the device's allocator would make every call wait.
  const ops::LinearForward args{.x = x, .weight = w, .y = y};
  try {
    Ledger ledger;
    MeasureArena measure(ledger);
    inner.memory = &measure;
    ops::linear_forward(inner, args);
    const Plan plan = Plan::pack(ledger);
    const DeviceMemory memory(ctx.device, plan.bytes());
    ReplayArena replay(plan, memory.data(), memory.bytes(), false);
    inner.memory = &replay;
    const double ms = median_on_device(inner, quick ? 3 : 7, [&] {
      ops::linear_forward(inner, args);
      replay.restart();
    });
    return 2.0 * static_cast<double>(kSize * kSize) * static_cast<double>(kSize) / (ms * 1e-3);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) return 0;
    throw;
  }
}

// x [m, k] · wᵀ [k, n].
struct GemmSize {
  int64_t m, k, n;
};

// FLOP/s of a product on the CPU: the given quantile of the times of `runs`, after one that warms up.
double host_gemm_rate(const Context& ctx, DType dtype, const GemmSize& size, int runs, double time_quantile) {
  Context inner = ctx;
  HeapArena arena;
  inner.memory = &arena;
  const OwnedTensor x(inner, "x", dtype, {size.m, size.k}, MemoryClass::other);
  const OwnedTensor w(inner, "w", dtype, {size.n, size.k}, MemoryClass::other);
  const OwnedTensor y(inner, "y", dtype, {size.m, size.n}, MemoryClass::other);
  for (const Tensor& t : {x.view, w.view}) {
    for (int64_t i = 0; i < t.elements(); ++i) {
      const float value = static_cast<float>(i % 97) * 0.01f - 0.5f;
      if (dtype == DType::bf16) {
        t.as<bf16>()[i] = bf16(value);
      } else if (dtype == DType::f16) {
        t.as<f16>()[i] = f16(value);
      } else {
        t.as<float>()[i] = value;
      }
    }
  }
  const auto multiply = [&] { ops::linear_forward(inner, {.x = x, .weight = w, .y = y}); };
  multiply();
  std::vector<double> samples;
  for (int i = 0; i < runs; ++i) samples.push_back(time_ms(multiply));
  return 2.0 * static_cast<double>(size.m * size.k * size.n) / (quantile(samples, time_quantile) * 1e-3);
}

}  // namespace

double measure_copy(const Context& ctx) {
  if (ctx.device.kind != DeviceKind::cpu) return measure_device_copy(ctx);
  constexpr int64_t kBytes = int64_t{256} << 20;
  const HostMemory from(kBytes), to(kBytes);
  const int threads =
      ctx.threads > 0 ? ctx.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto copy = [&] {
    std::vector<std::thread> workers;
    const int64_t share = kBytes / threads / 64 * 64;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] { stream_copy(to.data() + t * share, from.data() + t * share, share); });
    }
    for (std::thread& worker : workers) worker.join();
  };
  // Touching fresh pages is not measured.
  std::memset(from.data(), 1, static_cast<size_t>(kBytes));
  copy();
  std::vector<double> samples;
  for (int i = 0; i < 7; ++i) samples.push_back(time_ms(copy));
  return 2.0 * static_cast<double>(kBytes) / (quantile(samples, 0.5) * 1e-3);
}

double measure_gemm(const Context& ctx, DType dtype, bool quick) {
  if (ctx.device.kind != DeviceKind::cpu) return measure_device_gemm(ctx, quick);
  if (quick) return host_gemm_rate(ctx, dtype, {1024, 1024, 1024}, 3, 0.0);
  double best = 0;
  for (const GemmSize& size : {GemmSize{2048, 2048, 2048}, {1024, 768, 8192}, {512, 2048, 8192}, {4096, 1024, 1024}}) {
    best = std::max(best, host_gemm_rate(ctx, dtype, size, 5, 0.5));
  }
  return best;
}

}  // namespace tigon::bench
