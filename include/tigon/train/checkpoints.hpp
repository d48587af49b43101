#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace tigon {

// The checkpoints of a run: folders step-00000100, step-00000200, … in one folder.
std::filesystem::path checkpoint_path(const std::filesystem::path& folder, int64_t step);
// Those that are there, by rising step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);
// The newest that is whole; empty if there is none. Damaged ones are passed over and named in `damaged`.
std::filesystem::path newest_checkpoint(const std::filesystem::path& folder,
                                        std::vector<std::string>* damaged = nullptr);
// Renames those after `step`, so that they are no checkpoints of the run any more: "step-00000300.set-aside". Returns
// their new names.
std::vector<std::filesystem::path> set_aside_checkpoints(const std::filesystem::path& folder, int64_t step);
// Removes all but the newest `keep`, and what killed runs left behind. Those after the step `newest` neither count nor
// go: a run that saves an earlier one has passed over them as damaged, and they must not push out what is whole.
void prune_checkpoints(const std::filesystem::path& folder, int64_t keep,
                       int64_t newest = std::numeric_limits<int64_t>::max());
// Removes what killed runs left behind. The last whole copy of a checkpoint gets its name back instead.
void remove_unfinished(const std::filesystem::path& folder);

}  // namespace tigon
