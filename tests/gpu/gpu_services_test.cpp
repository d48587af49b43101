// Pinned memory, events between streams, and tasks of the host in a stream's order.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "gpu/gpu_fixture.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"

namespace tigon::test {
namespace {

constexpr Device kDevice{DeviceKind::cuda, 0};
constexpr int64_t kBytes = (int64_t{32} << 20) + 12345;  // no power of two, no multiple of a page

class GpuServices : public GpuTest {};

struct PinnedMemory : HostMemory {
  PinnedMemory() : HostMemory(kBytes), pinned(kDevice, data(), kBytes) {}
  Pinned pinned;
};

TEST_F(GpuServices, PinnedMemoryOfAnySizeCopiesBothWays) {
  const PinnedMemory from, to;
  for (int64_t i = 0; i < kBytes; ++i) from.data()[i] = static_cast<std::byte>(i * 7 % 251);
  const DeviceMemory device(kDevice, kBytes);
  const DeviceStream stream(kDevice);
  const Context ctx{.device = kDevice, .stream = stream.get()};
  device_copy(ctx, device.data(), from.data(), kBytes);
  device_copy(ctx, to.data(), device.data(), kBytes);
  synchronize(ctx);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), static_cast<size_t>(kBytes)), 0);
}

TEST_F(GpuServices, AStreamWaitsForAnEventOfAnother) {
  const PinnedMemory host;
  const DeviceMemory device(kDevice, kBytes);
  const DeviceStream one(kDevice), other(kDevice);
  const Context first{.device = kDevice, .stream = one.get()}, second{.device = kDevice, .stream = other.get()};
  std::memset(host.data(), 0, static_cast<size_t>(kBytes));
  DeviceEvent filled(kDevice, false);
  // The host's task is slow, so a stream that does not wait would read what was there before.
  device_fill(first, device.data(), 1, kBytes);
  host_task(first, [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  device_fill(first, device.data(), 2, kBytes);
  filled.record(first);
  filled.wait(second);
  device_copy(second, host.data(), device.data(), kBytes);
  synchronize(second);
  EXPECT_EQ(host.data()[0], std::byte{2});
  EXPECT_EQ(host.data()[kBytes - 1], std::byte{2});
}

TEST_F(GpuServices, HostTasksRunInTheStreamsOrder) {
  const DeviceStream stream(kDevice);
  const Context ctx{.device = kDevice, .stream = stream.get()};
  std::array<int, 100> order{};
  std::atomic<int> next = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    host_task(ctx, [&, i] { order[i] = next++; });
  }
  DeviceEvent done(kDevice, false);
  done.record(ctx);
  done.synchronize();
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int>(i));
}

TEST_F(GpuServices, WhatCannotBePinnedIsAnError) {
  try {
    const Pinned nothing(kDevice, reinterpret_cast<void*>(uintptr_t{1} << 40),
                         kBytes);  // NOLINT: nothing is mapped there
    FAIL() << "memory that does not exist was pinned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    EXPECT_NE(std::string(error.what()).find("--update cpu"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tigon::test
