#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tigon/core/error.hpp"
#include "tigon/ops/device_memory.hpp"

namespace tigon::test {

inline constexpr Device kGpu{DeviceKind::cuda, 0};

// Why there is no GPU here; empty where there is one. Whatever else is wrong, such as a backend that does not open, is
// thrown and fails the test. With TIGON_TEST_GPU=required, as under scripts/test gpu, a GPU that is not there does too.
inline std::string no_gpu() {
  try {
    synchronize({.device = kGpu});
    return "";
  } catch (const Error& error) {
    const std::string why = error.what();
    const char* demand = std::getenv("TIGON_TEST_GPU");
    const bool required = demand != nullptr && std::string(demand) == "required";
    // The last is the runtime's word for a machine without a driver, too.
    for (const char* absent : {"no device found", "no CUDA-capable device is detected",
                               "CUDA driver version is insufficient for CUDA runtime version"}) {
      if (!required && why.find(std::string("no usable NVIDIA GPU: ") + absent) != std::string::npos) return why;
    }
    throw;
  }
}

// Skipped, with the reason, where there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_gpu(); !why.empty()) GTEST_SKIP() << "no GPU to test on: " << why;
  }
};

}  // namespace tigon::test
