#pragma once

#include <filesystem>

#include "tigon/trace/recording.hpp"

namespace tigon {

// The first recorded step as a pickle that PyTorch's memory visualizer opens: the layout of
// torch.cuda.memory._snapshot(). Sizes are what blocks take. The file appears whole or not at all.
void write_snapshot(const std::filesystem::path& path, const Recording& recording);

// Error where no snapshot could be written there, or one would take the place of something else.
void check_snapshot_path(const std::filesystem::path& path);

}  // namespace tigon
