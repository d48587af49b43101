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

  friend constexpr bool operator==(const Device&, const Device&) = default;
};

std::string to_string(Device device);

// Reads "cpu", "cuda" or "cuda:1"; throws Error otherwise.
Device device_from_string(std::string_view text);

}  // namespace tigon
