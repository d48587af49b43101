#pragma once

#include <filesystem>

#include "tigon/trace/recording.hpp"

namespace tigon {

// The recording as PyTorch's profiler writes one, in the trace format of Chrome: Perfetto, TensorBoard's profiler
// plugin and Holistic Trace Analysis read it. Compressed where the name ends in .gz. The file appears whole or not at
// all.
void write_chrome_trace(const std::filesystem::path& path, const Recording& recording);

// Error where no trace could be written there, or one would take the place of something else.
void check_chrome_trace_path(const std::filesystem::path& path);

}  // namespace tigon
