#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tigon {

// What the host has to spare: of the machine, and of the control groups that this process is in, which in a container
// grant less. Absent where a system does not say. Tests give another root.
std::optional<int64_t> spare_host_memory(const std::filesystem::path& root = "/");

}  // namespace tigon
