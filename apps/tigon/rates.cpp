#include "rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ceilings.hpp"
#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"
#include "tigon/storage/block_file.hpp"
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

Rates copy_rates(const TrainConfig& train) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  Rates rates;
  const HostMemory host(kBytes);
  if (train.device.kind == DeviceKind::cpu) {
    const HostMemory device(kBytes);
    rates.up = rate_of(kBytes, [&] { std::memcpy(device.data(), host.data(), kBytes); });
    rates.down = rate_of(kBytes, [&] { std::memcpy(host.data(), device.data(), kBytes); });
    return rates;
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
  return rates;
}

Rates disk_rates(const TrainConfig& train) try {
  constexpr int64_t kBytes = int64_t{32} << 20;
  const DiskOptions& options = train.memory.disk;
  BlockFile file(offload_folder(options), "the measure of the disk", kBytes, options.file);
  const HostMemory memory(kBytes);
  std::memset(memory.data(), 1, kBytes);
  Rates rates;
  rates.disk_write = rate_of(kBytes, [&] { file.wait(file.write(0, memory.data(), kBytes)); });
  rates.disk_read = rate_of(kBytes, [&] { file.wait(file.read(0, memory.data(), kBytes)); });
  return rates;
} catch (const Error& error) {
  if (error.code() != ErrorCode::io && error.code() != ErrorCode::invalid_argument) throw;
  return {};  // the run says what is wrong with it
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

template <class Key, class F>
double known(std::map<Key, double>& rates, const Key& key, const F& measure) {
  const auto found = rates.find(key);
  return found != rates.end() ? found->second : rates.emplace(key, measure()).first->second;
}

}  // namespace

Rates RateBook::of(const TrainConfig& train, bool copy) try {
  const Homes& homes = train.memory.homes;
  Rates rates;
  if (homes.any_away()) {
    if (!copies_) copies_ = copy_rates(train);
    rates = *copies_;
    const std::string states = train.optimizer.kind == Optimizer::adamw8 ? " in 8 bits" : "";
    rates.host_update = known(host_update_, train.precision.name + states, [&] { return host_update_rate(train); });
  }
  if (homes.any_on_disk()) {
    if (!disk_) disk_ = disk_rates(train);
    rates.disk_read = disk_->disk_read;
    rates.disk_write = disk_->disk_write;
  }
  if (copy && !copy_) copy_ = on_device(train, bench::measure_copy);
  if (copy) rates.copy = *copy_;
  rates.gemm = known(gemm_, train.precision.weight, [&] { return gemm_rate(train); });
  return rates;
} catch (const Error& error) {
  if (error.code() != ErrorCode::out_of_memory) throw;
  return {};
}

Rates recorded_rates(const TrainConfig& train) {
  if (train.precision.weight == DType::f32) return {};
  return {.gemm = 795e12, .up = 55e9, .down = 55e9, .host_update = 5.35e9, .disk_read = 3.2e9, .disk_write = 1.8e9};
}

std::string parts_text(const Prediction& p) {
  std::string text = fmt::format("compute {:.3g}", p.compute);
  const auto add = [&](const char* what, double seconds) {
    if (seconds > 0) text += fmt::format(", {} {:.3g}", what, seconds);
  };
  add("up", p.up);
  add("down", p.down);
  add("update", p.update);
  add("disk", p.disk);
  return text;
}

std::string recorded_rates_text() {
  return "recorded on an H200 with 16 cores: 795 TFLOP/s, copies 55 GB/s each way, the host's AdamW 5.35 G "
         "parameters/s,\n"
         "disk 3.2 GB/s read and 1.8 written";
}

}  // namespace tigon::app
