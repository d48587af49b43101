#include "train/residency/disk.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace {

namespace fs = std::filesystem;

// No machine gives such an address to anybody, so that a tensor is on a disk or not by its address alone.
constexpr uintptr_t kFirst = uintptr_t{1} << 58, kLast = uintptr_t{1} << 59;

}  // namespace

// /tmp is often kept in memory, which is what this has no room in.
fs::path offload_folder(const DiskOptions& options) {
  if (!options.folder.empty()) return options.folder;
  const char* chosen = std::getenv("TMPDIR");
  fs::path folder = chosen != nullptr && *chosen != '\0' ? chosen : "/var/tmp";
  if (!kept_in_memory(folder)) return folder;
  throw Error(ErrorCode::invalid_argument, {.where = "--offload-dir",
                                            .what = "the folder for temporary files, " + folder.string() +
                                                    ", is kept in memory, which takes no less of it",
                                            .expected = "a folder on a disk",
                                            .fix = "Name one with --offload-dir."});
}

bool on_disk(const Tensor& t) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(t.data);
  return address >= kFirst && address < kLast;
}

Disk::Disk(const DiskOptions& options, int64_t bytes) {
  if (bytes == 0) return;
  folder_ = offload_folder(options);
  file_.emplace(folder_, "what has its home on the disk", bytes, options.file);
}

Allocation Disk::take(std::string_view name, int64_t bytes, MemoryClass memory_class) {
  const int64_t whole = align_up(bytes, kDiskPage);
  if (planned_ == nullptr && (!file_ || whole > file_->bytes() - used_)) {
    throw Error(ErrorCode::internal, {.where = "Disk",
                                      .what = "the run departs from its plan at '" + std::string(name) + "'",
                                      .fix = "Measure the same sequence that is run."});
  }
  const int64_t id = planned_ ? planned_->record_birth(name, whole, memory_class) : 0;
  void* address = reinterpret_cast<void*>(kFirst + static_cast<uintptr_t>(used_));  // NOLINT: never dereferenced
  used_ += whole;
  return {address, bytes, id};
}

void Disk::give_back(const Allocation& allocation) noexcept {
  if (planned_) planned_->record_death(allocation.id);
}

int64_t Disk::offset_of(const void* home) noexcept {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(home) - kFirst);
}

DiskTraffic Disk::traffic() const noexcept {
  return file_ ? DiskTraffic{.read = file_->bytes_read(), .written = file_->bytes_written()} : booked_;
}

std::string Disk::text() const {
  if (!file_) return {};
  return fmt::format("{} in {}, {}, {}{}", human_bytes(file_->bytes()), folder_.string(),
                     file_->direct() ? "past the page cache" : "through the page cache",
                     file_->ring() ? "by io_uring" : "one transfer at a time",
                     kept_in_memory(folder_) ? "; this folder is itself kept in the host's memory" : "");
}

}  // namespace tigon
