#include "rates.hpp"

#include <algorithm>
#include <cstring>

#include "ceilings.hpp"
#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"
#include "timing.hpp"

namespace tigon::app {

namespace {

constexpr int kRuns = 3;

double gemm_rate(const TrainConfig& train) {
  if (train.device.kind == DeviceKind::cpu) {
    HeapArena heap;
    return bench::measure_gemm({.threads = train.threads, .memory = &heap}, train.precision.weight, true);
  }
  DeviceArena arena(train.device);
  const DeviceStream stream(train.device);
  return bench::measure_gemm({.device = train.device, .stream = stream.get(), .memory = &arena}, DType::bf16, true);
}

// Bytes per second of the fastest of some copies, after one that touches all pages.
template <class F>
double rate_of(int64_t bytes, const F& copy) {
  copy();
  double best = bench::time_ms(copy);
  for (int i = 1; i < kRuns; ++i) best = std::min(best, bench::time_ms(copy));
  return static_cast<double>(bytes) / (best * 1e-3);
}

void measure_copies(const TrainConfig& train, Rates& rates) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const HostMemory host(kBytes);
  if (train.device.kind == DeviceKind::cpu) {
    const HostMemory device(kBytes);
    rates.up = rate_of(kBytes, [&] { std::memcpy(device.data(), host.data(), kBytes); });
    rates.down = rate_of(kBytes, [&] { std::memcpy(host.data(), device.data(), kBytes); });
    return;
  }
  const Pinned pinned(train.device, host.data(), kBytes);
  const DeviceMemory device(train.device, kBytes);
  const DeviceStream stream(train.device);
  const Context ctx{.device = train.device, .stream = stream.get()};
  const auto copy = [&](void* to, const void* from) {
    return rate_of(kBytes, [&] {
      device_copy(ctx, to, from, kBytes);
      synchronize(ctx);
    });
  };
  rates.up = copy(device.data(), host.data());
  rates.down = copy(host.data(), device.data());
}

// Parameters per second of AdamW on the host, over more than its caches hold.
double host_update_rate(const TrainConfig& train) {
  constexpr int64_t kElements = int64_t{1} << 23;
  const Precision& precision = train.precision;
  const bool coded = train.optimizer.kind == Optimizer::adamw8;  // nearly all of it
  HeapArena heap;
  const Context ctx{.threads = train.threads, .memory = &heap};
  const auto make_of = [&](DType dtype, int64_t elements) {
    OwnedTensor tensor(ctx, "rate", dtype, {elements}, MemoryClass::other);
    std::memset(tensor.view.data, 0, static_cast<size_t>(tensor.view.bytes()));
    return tensor;
  };
  const auto make = [&](DType dtype) { return make_of(dtype, kElements); };
  const auto scale = [&] { return coded ? make_of(DType::f32, kElements / ops::kCodeBlock) : OwnedTensor(); };
  const OwnedTensor weight = make(precision.weight), grad = make(precision.grad),
                    m = make(coded ? DType::u8 : precision.m), v = make(coded ? DType::u8 : precision.v),
                    m_scale = scale(), v_scale = scale(),
                    master = precision.master ? make(*precision.master) : OwnedTensor();
  const ops::Adamw args{.param = master.view.present() ? master.view : weight.view,
                        .grad = grad,
                        .m = m,
                        .v = v,
                        .m_scale = m_scale,
                        .v_scale = v_scale,
                        .param_copy = master.view.present() ? weight.view : Tensor{},
                        .rounding = precision.rounding};
  return rate_of(kElements, [&] { ops::adamw(ctx, args); });
}

}  // namespace

Rates measured_rates(const TrainConfig& train) try {
  Rates rates{.gemm = gemm_rate(train)};
  if (train.memory.homes.any_away()) {
    measure_copies(train, rates);
    rates.host_update = host_update_rate(train);
  }
  return rates;
} catch (const Error& error) {
  if (error.code() != ErrorCode::out_of_memory) throw;
  return {};
}

}  // namespace tigon::app
