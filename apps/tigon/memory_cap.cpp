#include "memory_cap.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tigon/core/error.hpp"
#include "tigon/ops/device_trace.hpp"

namespace tigon::app {

namespace {

// What this process may write to now.
int64_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmData:")) return std::strtoll(line.c_str() + 7, nullptr, 10) * 1024;
  }
  return 0;
}

void limit_process(int64_t more) {
  rlimit limit{};
  (void)getrlimit(RLIMIT_DATA, &limit);
  const auto wanted = static_cast<rlim_t>(data_bytes() + more);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= wanted) return;
  limit.rlim_cur = wanted;
  if (setrlimit(RLIMIT_DATA, &limit) == 0) return;
  throw Error(ErrorCode::unsupported, {.where = "--cap",
                                       .what = std::string("the system sets no such limit: ") + std::strerror(errno),
                                       .fix = "Leave --cap out."});
}

}  // namespace

MemoryCap::MemoryCap(Device device, int64_t bytes, int64_t host_bytes) {
  if (bytes == 0) return;
  if (device.kind == DeviceKind::cpu) {
    limit_process(bytes + host_bytes);
  } else if (const int64_t rest = describe_device(device).memory - bytes; rest > 0) {
    rest_.emplace(device, rest);
  }
}

}  // namespace tigon::app
