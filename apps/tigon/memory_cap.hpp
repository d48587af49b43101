#pragma once

#include <cstdint>
#include <optional>

#include "tigon/core/device.hpp"
#include "tigon/ops/device_memory.hpp"

namespace tigon::app {

// Lets this process have no more than so many bytes of the device's memory, as if there were no more. On a GPU it takes
// the rest of the card for as long as it lives. On a CPU the system lets the process have so much beyond what it holds
// already, and `host_bytes` for what is no memory of the device. 0: no cap.
class MemoryCap {
 public:
  MemoryCap(Device device, int64_t bytes, int64_t host_bytes);

 private:
  std::optional<DeviceMemory> rest_;
};

}  // namespace tigon::app
