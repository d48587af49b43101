#pragma once

#include <cstdint>
#include <filesystem>

#include "tigon/storage/block_file.hpp"

namespace tigon {

inline constexpr int64_t kDiskUnit = 4096;  // so many elements of any type are whole pages, also of one byte

// How bytes whose home is the disk get there.
struct DiskOptions {
  std::filesystem::path folder{};    // for the file that they are in; empty: one for temporary files
  int64_t piece = int64_t{1} << 20;  // elements that move at a time: a multiple of kDiskUnit
  BlockFileOptions file{};
};

// Where their file is made: `folder`, or the folder for temporary files, unless that is kept in memory.
std::filesystem::path offload_folder(const DiskOptions& options);

// Bytes to and from the disk.
struct DiskTraffic {
  int64_t read = 0;
  int64_t written = 0;
  friend bool operator==(const DiskTraffic&, const DiskTraffic&) = default;
};

}  // namespace tigon
