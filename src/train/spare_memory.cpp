#include "train/spare_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace tigon {

namespace {

namespace fs = std::filesystem;

std::optional<int64_t> number(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0) return {};  // "max"
  return digits > 18 ? std::numeric_limits<int64_t>::max() : std::stoll(text.substr(0, digits));
}

// The number in a file of one, or after a word at the beginning of a line.
std::optional<int64_t> number_in(const fs::path& file, std::string_view word = {}) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(word)) continue;
    const size_t begin = line.find_first_not_of(' ', word.size());
    return begin == std::string::npos ? std::nullopt : number(line.substr(begin));
  }
  return {};
}

struct Names {
  const char *limit, *used, *cached[2];
};
constexpr Names kVersion1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file ", "total_active_file "}};
constexpr Names kVersion2 = {"memory.max", "memory.current", {"inactive_file ", "active_file "}};

// Of one group, where it has a limit. What files have in memory goes when it is needed.
std::optional<int64_t> spare_of(const fs::path& group, const Names& names) {
  const std::optional<int64_t> limit = number_in(group / names.limit), used = number_in(group / names.used);
  if (!limit || !used) return {};
  int64_t cached = 0;
  for (const char* word : names.cached) cached += number_in(group / "memory.stat", word).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cached));
}

}  // namespace

std::optional<int64_t> spare_host_memory(const fs::path& root) {
  std::optional<int64_t> least;
  const auto take = [&](std::optional<int64_t> bytes) {
    if (bytes && (!least || *bytes < *least)) least = bytes;
  };
  if (const std::optional<int64_t> kib = number_in(root / "proc/meminfo", "MemAvailable:")) take(*kib * 1024);
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path", or of the first version "4:cpu,memory:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool newer = controllers == ",,";
    if (!newer && controllers.find(",memory,") == std::string::npos) continue;
    const fs::path top = root / "sys/fs/cgroup" / (newer ? "" : "memory");
    // Every group above has its limit too. What a container cannot see of the path is not there.
    fs::path path = fs::path(line.substr(second + 1)).relative_path();
    for (;; path = path.parent_path()) {
      take(spare_of(path.empty() ? top : top / path, newer ? kVersion2 : kVersion1));
      if (path.empty()) break;
    }
  }
  return least;
}

}  // namespace tigon
