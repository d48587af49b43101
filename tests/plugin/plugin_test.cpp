// Opening the CUDA backend: a library that is none, an older one and one of another build are refused by name.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tigon/core/error.hpp"
#include "tigon/ops/device_memory.hpp"

namespace tigon::test {
namespace {

std::string fault_of(const char* library) {
  (void)setenv("TIGON_CUDA_LIBRARY", library, 1);
  std::string fault;
  try {
    synchronize({.device = {DeviceKind::cuda, 0}});
  } catch (const Error& error) {
    fault = error.what();
  }
  (void)unsetenv("TIGON_CUDA_LIBRARY");
  return fault;
}

TEST(Plugin, OtherBuildsAreRefused) {
  EXPECT_NE(fault_of(TIGON_UNVERSIONED_PLUGIN).find("is of an older build: it does not say its version"),
            std::string::npos);
  EXPECT_NE(fault_of(TIGON_STALE_PLUGIN).find("is of another build of version " TIGON_VERSION), std::string::npos);
  EXPECT_NE(fault_of(TIGON_OLD_PLUGIN).find("its version is 0.0.1, expected " TIGON_VERSION), std::string::npos);
}

TEST(Plugin, WhatIsNoBackendIsRefused) {
  EXPECT_NE(fault_of("libm.so.6").find("is no CUDA backend of Tigon"), std::string::npos);
  EXPECT_NE(fault_of("/nowhere/libtigon_cuda.so").find("there is no file /nowhere/libtigon_cuda.so"),
            std::string::npos);
}

}  // namespace
}  // namespace tigon::test
