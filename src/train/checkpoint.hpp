#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "tigon/train/precision.hpp"

namespace tigon {

inline constexpr const char* kRunText = "run.toml";  // the run's flags, where it has any

// What a checkpoint says about itself, in checkpoint.json.
struct CheckpointInfo {
  std::map<std::string, uint64_t> files{};  // the checksum of each file that was written
  int64_t step = 0;
  int64_t updates = 0;
  LossScale::State loss_scale{};
  std::string precision{};
  std::map<std::string, std::string> settings{};
};

// Lets `write` fill a folder beside `folder` and say what it wrote, adds checkpoint.json, flushes, and renames it into
// place: the folder is whole or not there. One that it replaces is there until then; where the file system cannot
// exchange two names, a kill may leave both beside the name, and put_back_checkpoint finds them.
void write_checkpoint(const std::filesystem::path& folder,
                      const std::function<CheckpointInfo(const std::filesystem::path& inside)>& write);

// Where a kill left no whole checkpoint of this name but a whole copy beside it, the copy gets the name.
void put_back_checkpoint(const std::filesystem::path& folder);

// Checks every file against its checksum.
CheckpointInfo read_checkpoint(const std::filesystem::path& folder);

// Throws Error naming what differs.
void check_settings(const std::filesystem::path& folder, const CheckpointInfo& info, const std::string& precision,
                    const std::map<std::string, std::string>& settings);

}  // namespace tigon
