#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tigon/storage/block_file.hpp"
#include "train/small_model.hpp"

namespace tigon::test {

// How bytes get to the disk. Where a machine cannot do as asked, the next way down runs instead.
struct Way {
  const char* name;
  bool direct, ring;
};
inline constexpr Way kWays[] = {{"RingDirect", true, true},
                                {"RingCached", false, true},
                                {"PlainDirect", true, false},
                                {"PlainCached", false, false}};

class BlockFiles : public testing::TestWithParam<Way> {
 protected:
  // Small pieces and few at once, so that every request is many transfers and has to wait for some.
  BlockFileOptions options() const {
    return {.direct = GetParam().direct, .ring = GetParam().ring, .piece_bytes = 16384, .depth = 4};
  }
  std::filesystem::path folder() {
    if (!folder_) folder_.emplace();
    return *folder_ / "blocks";
  }

 private:
  std::optional<TemporaryFolder> folder_;
};

inline std::string way_name(const testing::TestParamInfo<Way>& info) { return info.param.name; }

// Memory that begins a little after the beginning of a page, or there.
class Memory {
 public:
  explicit Memory(int64_t bytes, int64_t after = 0)
      : all_(static_cast<char*>(std::aligned_alloc(4096, static_cast<size_t>((bytes + after + 4095) / 4096 * 4096))),
             &std::free),
        after_(after),
        bytes_(bytes) {}
  char* data() { return all_.get() + after_; }
  int64_t bytes() const { return bytes_; }
  std::string text() { return {data(), static_cast<size_t>(bytes_)}; }
  void fill(uint64_t seed) {
    for (int64_t i = 0; i < bytes_; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      data()[i] = static_cast<char>(seed >> 56);
    }
  }

 private:
  std::unique_ptr<char, decltype(&std::free)> all_;
  int64_t after_, bytes_;
};

// The files without a name that this process has open in a folder, as paths that open them once more.
inline std::vector<std::filesystem::path> open_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    if (std::filesystem::read_symlink(entry.path(), none).string().starts_with(folder.string() + "/"))
      found.push_back(entry.path());
  }
  return found;
}

}  // namespace tigon::test
