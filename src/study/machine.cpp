#include "study/machine.hpp"

#include <unistd.h>

#include <fstream>
#include <thread>

#include "tigon/ops/device_trace.hpp"

namespace tigon {

namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Json machine_json(Device device) {
  Json json;
  json.set("cpu", cpu_name());
  json.set("threads", static_cast<int64_t>(std::thread::hardware_concurrency()));
  json.set("memory_bytes", int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGE_SIZE)});
  json.set("device", to_string(device));
  if (device.kind == DeviceKind::cpu) return json;
  const DeviceDescription description = describe_device(device);
  json.set("device_name", description.name);
  json.set("device_memory_bytes", description.memory);
  return json;
}

}  // namespace tigon
