#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace tigon {

// A file of events in a folder that TensorBoard watches. Every add() is handed to the system, so that a TensorBoard
// that is open shows it.
class TensorboardFile {
 public:
  // A new file, for the steps after `step`: TensorBoard forgets what earlier files of the folder say of them. Error
  // where it cannot be made.
  TensorboardFile(const std::filesystem::path& folder, int64_t step);
  ~TensorboardFile();
  TensorboardFile(const TensorboardFile&) = delete;
  TensorboardFile& operator=(const TensorboardFile&) = delete;

  struct Scalar {
    std::string_view tag;  // "train/loss"
    double value;
  };
  // Error where it cannot be written; nothing more may be added then. The file is good up to there.
  void add(int64_t step, const std::vector<Scalar>& scalars);

 private:
  void write_record(std::string_view event);

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace tigon
