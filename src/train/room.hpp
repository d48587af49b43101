#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tigon {

// What a run is going to write.
struct RoomNeed {
  std::filesystem::path folder;  // must exist
  int64_t count = 0;             // so many files or folders
  int64_t bytes = 0;             // of so many bytes each
  std::string what;
};

// Throws Error unless every file system has room for all that is to be written to it. One that does not say how much it
// has is believed to have enough.
void check_room(const std::vector<RoomNeed>& needs);

// Throws Error unless the host has so much memory to spare (spare_memory.hpp): the system grants more than there is,
// and ends the process when it is used. A system that does not say how much it has is believed to have enough.
void check_host_memory(int64_t bytes);

}  // namespace tigon
