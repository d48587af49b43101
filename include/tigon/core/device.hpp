#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tigon {

enum class DeviceKind : int32_t { cpu = 0, cuda = 1 };

// Where a tensor's bytes live and an op runs.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int32_t index = 0;

  // See assumed_gpu().
  constexpr bool assumed() const { return kind == DeviceKind::cuda && index < 0; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

// A GPU that is not there, for plans on a machine without one: ops measure on it as they would on the one that the CUDA
// backend has in mind, and refuse to run.
constexpr Device assumed_gpu() { return {DeviceKind::cuda, -1}; }

std::string to_string(Device device);

// Reads "cpu", "cuda" or "cuda:1"; throws Error otherwise.
Device device_from_string(std::string_view text);

}  // namespace tigon
