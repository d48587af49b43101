#pragma once

#include <gtest/gtest.h>

#include "tigon/core/error.hpp"
#include "tigon/ops/device_memory.hpp"

namespace tigon::test {

inline constexpr Device kGpu{DeviceKind::cuda, 0};

// Skipped, with the reason, where there is no usable GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      synchronize({.device = kGpu});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

}  // namespace tigon::test
