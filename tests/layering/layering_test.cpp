// Who may include whom. The rules are docs/architecture.md's; this test reads the #include lines and fails on a breach.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path kRoot = TIGON_SOURCE_DIR;

// A room of the house: the folders it lives in, the rooms whose headers it may include besides its own, and the headers
// from outside that it may include: everything that is neither ours nor standard C++.
struct Room {
  std::vector<std::string> folders;
  std::set<std::string> sees;
  std::vector<std::string> outside;
};

const std::map<std::string, Room> kRooms = {
    {"core", {{"include/tigon/core", "src/core"}, {}, {}}},
    {"memory", {{"include/tigon/memory", "src/memory"}, {"core"}, {"sys/mman.h", "sanitizer/"}}},
    {"op headers", {{"include/tigon/ops"}, {"core"}, {}}},
    {"backend table", {{"src/backend"}, {"core", "op headers"}, {}}},
    {"backend/reference", {{"src/backend/reference"}, {"core", "op headers", "backend table"}, {}}},
    {"backend/cpu",
     {{"src/backend/cpu"},
      {"core", "memory", "op headers", "backend table"},
      {"hwy/", "omp.h", "dnnl.h", "pthread.h", "unistd.h"}}},
    {"backend/cuda",
     {{"src/backend/cuda"},
      {"core", "memory", "op headers", "backend table"},
      {"cuda", "cublas", "cudnn", "cupti.h", "nv", "cooperative_groups.h", "library_types.h", "cxxabi.h", "dlfcn.h"}}},
    {"ops", {{"src/ops"}, {"core", "op headers", "backend table", "backend/reference", "backend/cpu"}, {"dlfcn.h"}}},
    {"json", {{"src/json"}, {"core"}, {"nlohmann/"}}},
    {"model", {{"include/tigon/model", "src/model"}, {"core", "op headers", "json"}, {}}},
    {"storage",
     {{"include/tigon/storage", "src/storage"},
      {"core", "json"},
      {"liburing.h", "fcntl.h", "sys/file.h", "sys/stat.h", "sys/statfs.h", "sys/statvfs.h", "unistd.h"}}},
    {"text", {{"include/tigon/text", "src/text"}, {"core", "json", "storage"}, {"pcre2.h", "utf8proc.h"}}},
    {"trace",
     {{"include/tigon/trace", "src/trace"},
      {"core", "memory", "op headers", "json", "storage"},
      {"zlib.h", "fcntl.h", "unistd.h"}}},
    {"train",
     {{"include/tigon/train", "src/train"},
      {"core", "memory", "op headers", "json", "model", "storage", "text", "trace"},
      {"sys/stat.h"}}},
    {"generate",
     {{"include/tigon/generate", "src/generate"},
      {"core", "memory", "op headers", "json", "model", "storage", "trace", "train"},
      {}}},
    {"study",
     {{"include/tigon/study", "src/study"},
      {"core", "memory", "op headers", "json", "model", "storage", "train"},
      {"toml++/", "fcntl.h", "sys/prctl.h", "sys/wait.h", "unistd.h"}}},
    {"report", {{"src/report"}, {"core", "memory", "op headers", "json", "model", "storage", "trace", "train"}, {}}},
    {"C ABI", {{"src/capi", "include/tigon/tigon.h"}, {"core", "memory", "op headers"}, {"stdint.h"}}},
    {"Python binding", {{"python/binding"}, {"C ABI"}, {"Python.h", "sys/mman.h"}}},
    {"bench", {{"bench/ops"}, {"core", "memory", "op headers"}, {"emmintrin.h"}}},
    {"profile", {{"bench/profile"}, {}, {"cupti.h"}}},
    {"app",
     {{"apps/tigon"},
      {"core", "memory", "op headers", "model", "storage", "text", "trace", "train", "generate", "study", "report",
       "bench"},
      {"CLI/", "fcntl.h", "sys/ioctl.h", "sys/resource.h", "unistd.h"}}},
};
// Of the system, not of a library: any number of rooms may list them.
const std::vector<std::string> kSystem = {"dlfcn.h", "fcntl.h", "pthread.h", "spawn.h", "stdint.h", "sys/", "unistd.h"};
// Small and used across rooms, but in no public header.
const std::vector<std::string> kEverywhere = {"fmt/"};

std::vector<fs::path> sources() {
  std::vector<fs::path> found;
  for (const char* top : {"include", "src", "bench", "apps", "python"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      const std::string extension = entry.path().extension();
      if (std::set<std::string>{".hpp", ".cpp", ".h", ".cuh", ".cu"}.contains(extension)) found.push_back(entry.path());
    }
  }
  return found;
}

// The room with the longest matching folder.
std::string room_of(const std::string& relative) {
  std::string best;
  size_t length = 0;
  for (const auto& [name, room] : kRooms) {
    for (const std::string& folder : room.folders) {
      if ((relative == folder || relative.starts_with(folder + "/")) && folder.size() > length) {
        best = name;
        length = folder.size();
      }
    }
  }
  return best;
}

// Where an #include "…" of a file leads, relative to the root; empty if it is nothing of ours.
std::string resolve(const fs::path& file, const std::string& name) {
  for (const fs::path& base : {kRoot / "include", kRoot / "src", file.parent_path(), kRoot / "bench/ops"}) {
    if (fs::exists(base / name)) return fs::relative(base / name, kRoot).string();
  }
  return "";
}

bool matches(const std::vector<std::string>& prefixes, const std::string& name) {
  for (const std::string& prefix : prefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

struct Include {
  fs::path file;
  std::string name;
  bool quoted;
};

std::vector<Include> includes() {
  std::vector<Include> all;
  for (const fs::path& file : sources()) {
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);) {
      const size_t word = line.find("#include");
      const size_t open = line.find_first_of("<\"", word);
      if (word == std::string::npos || line.find_first_not_of(" \t") != word || open == std::string::npos) continue;
      const size_t close = line.find_first_of(">\"", open + 1);
      all.push_back({file, line.substr(open + 1, close - open - 1), line[open] == '"'});
    }
  }
  return all;
}

TEST(Layering, EveryFileLivesInARoom) {
  for (const fs::path& file : sources()) {
    const std::string relative = fs::relative(file, kRoot).string();
    EXPECT_NE(room_of(relative), "") << relative
                                     << " is in no room of this test; add it to docs/architecture.md and here";
  }
}

TEST(Layering, FoldersSeeOnlyWhatStandsToTheirLeft) {
  int followed = 0;
  for (const Include& include : includes()) {
    if (!include.quoted) continue;
    const std::string from = fs::relative(include.file, kRoot).string();
    const std::string to = resolve(include.file, include.name);
    ASSERT_NE(to, "") << from << " includes \"" << include.name << "\", which does not exist";
    const std::string from_room = room_of(from), to_room = room_of(to);
    ++followed;
    EXPECT_TRUE(from_room == to_room || kRooms.at(from_room).sees.contains(to_room))
        << from << " (" << from_room << ") may not include " << to << " (" << to_room << ")";
    EXPECT_TRUE(!from.starts_with("include/") || to.starts_with("include/"))
        << from << " is public and includes " << to;
  }
  EXPECT_GT(followed, 50);
}

TEST(Layering, HeadersFromOutsideStayInTheRoomsThatListThem) {
  std::set<std::string> found;
  for (const Include& include : includes()) {
    const bool standard = include.name.find_first_of("./") == std::string::npos;
    if (include.quoted || standard) continue;
    found.insert(include.name);
    const std::string from = fs::relative(include.file, kRoot).string(), room = room_of(from);
    const bool everywhere = matches(kEverywhere, include.name) && !from.starts_with("include/");
    EXPECT_TRUE(everywhere || matches(kRooms.at(room).outside, include.name))
        << from << " includes <" << include.name << ">, which " << room << " does not list";
  }
  EXPECT_TRUE(found.contains("hwy/highway.h") && found.contains("fmt/format.h"));
}

TEST(Layering, EachLibraryHasOneRoom) {
  std::map<std::string, std::string> owners;
  for (const auto& [name, room] : kRooms) {
    if (name == "profile") continue;  // a tool that is built apart, by hand
    for (const std::string& header : room.outside) {
      if (matches(kSystem, header)) continue;
      EXPECT_TRUE(owners.emplace(header, name).second) << name << " and " << owners[header] << " both list " << header;
    }
  }
}

}  // namespace
