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

// What `measure` says of the device.
template <class F>
double on_device(const TrainConfig& train, const F& measure) {
  if (train.device.kind == DeviceKind::cpu) {
    HeapArena heap;
    return measure(Context{.threads = train.threads, .memory = &heap});
  }
  DeviceArena arena(train.device);
  const DeviceStream stream(train.device);
  return measure(Context{.device = train.device, .stream = stream.get(), .memory = &arena});
}

double gemm_rate(const TrainConfig& train) {
  const DType dtype = train.device.kind == DeviceKind::cpu ? train.precision.weight : DType::bf16;
  return on_device(train, [&](const Context& ctx) { return bench::measure_gemm(ctx, dtype, true); });
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
  HeapArena heap;
  const Context ctx{.threads = train.threads, .memory = &heap};
  const auto make = [&](DType dtype) {
    OwnedTensor tensor(ctx, "rate", dtype, {kElements}, MemoryClass::other);
    std::memset(tensor.view.data, 0, static_cast<size_t>(tensor.view.bytes()));
    return tensor;
  };
  const OwnedTensor weight = make(precision.weight), grad = make(precision.grad), m = make(precision.m),
                    v = make(precision.v), master = precision.master ? make(*precision.master) : OwnedTensor();
  const ops::Adamw args{.param = master.view.present() ? master.view : weight.view,
                        .grad = grad,
                        .m = m,
                        .v = v,
                        .param_copy = master.view.present() ? weight.view : Tensor{},
                        .rounding = precision.rounding};
  return rate_of(kElements, [&] { ops::adamw(ctx, args); });
}

}  // namespace

Rates measured_rates(const TrainConfig& train, bool copy) try {
  Rates rates{.gemm = gemm_rate(train)};
  if (copy) rates.copy = on_device(train, bench::measure_copy);
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
