#include "train/room.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <limits>
#include <map>
#include <system_error>

#include "tigon/core/error.hpp"
#include "tigon/memory/ledger.hpp"
#include "train/spare_memory.hpp"

namespace tigon {

void check_room(const std::vector<RoomNeed>& needs) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  struct Sum {
    int64_t bytes = 0;
    std::string what;
  };
  std::map<dev_t, Sum> sums;
  for (const RoomNeed& need : needs) {
    struct stat status {};
    std::error_code unknown;
    const std::filesystem::space_info space = std::filesystem::space(need.folder, unknown);
    if (need.count == 0 || unknown || space.capacity == 0 || ::stat(need.folder.c_str(), &status) != 0) continue;
    Sum& sum = sums[status.st_dev];
    int64_t bytes = 0;
    if (__builtin_mul_overflow(need.count, need.bytes, &bytes) || __builtin_add_overflow(sum.bytes, bytes, &sum.bytes))
      sum.bytes = kMost;
    sum.what +=
        fmt::format("{}{} × {} of {}", sum.what.empty() ? "" : ", ", need.count, need.what, human_bytes(need.bytes));
    if (static_cast<uintmax_t>(sum.bytes) <= space.available) continue;
    throw Error(ErrorCode::io,
                {.where = need.folder.string(),
                 .what = "the disk has too little room for what this run writes there (" + sum.what + ")",
                 .expected = "at least " + human_bytes(sum.bytes),
                 .got = human_bytes(static_cast<int64_t>(space.available)),
                 .fix = "Make room, choose another folder, or lower --keep: a checkpoint is written "
                        "before the oldest one goes, so there is one more for a moment."});
  }
}

void check_host_memory(int64_t bytes) {
  const std::optional<int64_t> spare = spare_host_memory();
  if (!spare || bytes <= *spare) return;
  throw Error(ErrorCode::out_of_memory,
              {.where = "--offload",
               .what = "the host has too little memory for what has its home there",
               .expected = human_bytes(bytes),
               .got = human_bytes(*spare) + " to spare",
               .fix = "Keep less there: states=nvme puts the states on a disk, --precision bf16-sr halves them and "
                      "--optimizer adamw8 takes more of them, and "
                      "'tigon plan' shows what takes how much."});
}

}  // namespace tigon
